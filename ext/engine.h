// The CPU engine: replays a tape of records on flat regions of memory. This header is its C ABI, the same
// natively and in WebAssembly.
//
// How a kernel is written (tests parse this form, so it is regular):
//   - ext/kernels/<stem>.cpp holds the kernels of one op, forward beside backward.
//   - each kernel is one function at namespace scope whose parameter list starts with `Run& run`:
//         void NAME(Run& run, int64_t LETTER, ..., float|int32_t PARAM, ..., [const] float|int32_t* ARGUMENT, ...) {
//     int64_t parameters are the record's letters, float and int32_t values its parameters, pointers its operands,
//     each with the contract's name and in the contract's order; `const` means the kernel only reads it.
//   - `PTL_KERNEL(NAME)` after it makes the entry that unpacks a record into that parameter list.
// ext/kernel_list.h is the registry: order (= kernel id), letters, parameters, operand extents.
//
// A record is 32 little-endian int64 words: [0] kernel id, [1..8] letters, [9..14] parameters (a float as its float32
// bits), [15] zero, [16..31] operand addresses, (region << 56) | byte offset. Words a kernel does not use are zero.
#pragma once
#include <stdint.h>

#if defined(_WIN32)
#define PTL_EXPORT extern "C" __declspec(dllexport)
#else
#define PTL_EXPORT extern "C" __attribute__((used, visibility("default")))
#endif

struct ptl_engine;

// threads >= 1, the calling thread included (clamped to 1..64; 1 in a build without threads). NULL: out of memory.
PTL_EXPORT ptl_engine* ptl_open(int threads);
// The same with a chosen build of the kernels ("sse2", "avx2", ...). NULL also when this host cannot run it.
PTL_EXPORT ptl_engine* ptl_open_isa(int threads, const char* isa);
PTL_EXPORT void ptl_close(ptl_engine* engine);
// (Re)allocates a region: 256-byte aligned, zero-filled; the old memory is released. 0 ok, 1 see ptl_error().
PTL_EXPORT int ptl_allocate(ptl_engine* engine, int region, int64_t bytes);
PTL_EXPORT void* ptl_region(ptl_engine* engine, int region);
// Refuses a tape that names an unknown kernel, a size < 1, an operand outside its region, misaligned, or overlapping
// one that is written. Replay checks each record again, so a tape can do no harm unchecked; neither allocates memory.
PTL_EXPORT int ptl_check(ptl_engine* engine, const int64_t* tape, int64_t records);
// Runs the records in order. 0 ok; 1: see ptl_error(); records before the failed one have run.
PTL_EXPORT int ptl_replay(ptl_engine* engine, const int64_t* tape, int64_t records);
// The last failure as a sentence, "record 12 linear: ..."; "" when there was none.
PTL_EXPORT const char* ptl_error(ptl_engine* engine);
PTL_EXPORT int ptl_kernel_count(void);
PTL_EXPORT const char* ptl_kernel_name(int id);
// The build ptl_open chooses on this host: "wasm simd128", "avx512", "avx2", "sse2", "neon".
PTL_EXPORT const char* ptl_isa(void);
PTL_EXPORT const char* ptl_engine_isa(ptl_engine* engine);
PTL_EXPORT int ptl_threads(ptl_engine* engine);

// Benches. Peak: GFLOP/s of the best register-only multiply-add loop on one thread, measured for about `seconds`.
PTL_EXPORT double ptl_bench_peak(ptl_engine* engine, double seconds);
// Best of `repeats`, in seconds, of C[m,n] = A.B on the engine's threads; layout 0 NN, 1 NT (B stored [n,k]), 2 TN
// (A stored [k,m], C accumulates). Negative: out of memory or a size < 1.
PTL_EXPORT double ptl_bench_gemm(ptl_engine* engine, int layout, int64_t m, int64_t n, int64_t k, int repeats);
