// Byte-level BPE, GPT-2 style: splits text, learns merges, encodes. The same C ABI natively and in WebAssembly.
//
// Text is bytes; each byte that is not UTF-8 counts as a character of class other. Calls that return a count leave that
// many int32 in ptl_bpe_result(), which stand until the next call. Negative: kBpeMemory or kBpeArgument.
#pragma once
#include "engine.h"

struct ptl_bpe;

enum { kBpeMemory = -1, kBpeArgument = -2 };

// `runs` cover all code points in order, each length << 2 | class (0 other, 1 letter, 2 number, 3 white space).
// NULL: they do not sum to 0x110000, or there is no memory.
PTL_EXPORT ptl_bpe* ptl_bpe_open(const int32_t* runs, int64_t count);
PTL_EXPORT void ptl_bpe_close(ptl_bpe* bpe);
// 256 ids of the bytes, then (left, right, token) for each merge in order. 0; kBpeArgument: other sizes, negative ids,
// or a pair given twice; the table before then stays. Forgets what was counted.
PTL_EXPORT int64_t ptl_bpe_load(ptl_bpe* bpe, const int32_t* table, int64_t count);
// The ids of a text.
PTL_EXPORT int64_t ptl_bpe_encode(ptl_bpe* bpe, const uint8_t* text, int64_t bytes);
// The lengths in bytes of a text's pre-tokens.
PTL_EXPORT int64_t ptl_bpe_split(ptl_bpe* bpe, const uint8_t* text, int64_t bytes);
// Adds a text's pre-tokens to the counts; returns how many different ones there are, and no result.
PTL_EXPORT int64_t ptl_bpe_count(ptl_bpe* bpe, const uint8_t* text, int64_t bytes);
// Learns from the counts until there are `tokens` new tokens (ids from 256 on) or no pair comes `minimum` times.
// The result is (left, right, token) for each merge in order: three times as many int32 as the merges it returns.
PTL_EXPORT int64_t ptl_bpe_train(ptl_bpe* bpe, int64_t tokens, int64_t minimum);
PTL_EXPORT const int32_t* ptl_bpe_result(ptl_bpe* bpe);
