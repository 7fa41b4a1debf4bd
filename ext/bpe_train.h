// Learns merges from counted words.
#pragma once
#include <stdint.h>

#include <vector>

#include "bpe_tables.h"

namespace ptl {

// (left, right, token) for each merge in order, until there are `tokens` new ones (from 256 on) or no pair comes
// `minimum` times. The commonest pair is merged first; of equally common ones that with the smaller left id, then the
// smaller right.
std::vector<int32_t> train(const WordTable& words, const std::vector<int64_t>& counts, const int32_t* byte_ids,
                           int64_t tokens, int64_t minimum);

} // namespace ptl
