// Matrix products. Every output accumulates along k in order inside blocks of kBlockK that start from zero, and blocks
// are added in order: the same bits for every register tile, vector width, thread count and number of rows.
#pragma once
#include "run.h"
#include "simd.h"

namespace ptl {
namespace PTL_ISA {

constexpr int64_t kBlockK = 256; // fixed: it decides rounding

// The register tile: kTileM rows by kTileN = 2 vectors. With 16 vector registers, 5 x 2 sums leave room for 2 vectors
// of B, 1 of A and 1 product; V8 keeps a register for itself and loads all of A's values first, so there 4 x 2 is the
// most.
#if PTL_W == 16 || defined(__aarch64__)
constexpr int kTileM = 8;
#elif PTL_W == 8
constexpr int kTileM = 5;
#else
constexpr int kTileM = 4;
#endif
constexpr int kTileN = 2 * W;

constexpr int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

enum Layout { NN, NT, TN };

// C[m,n] = A . B (+ bias), or C += A . B where accumulate. Leading dimensions are distances between stored rows.
struct Gemm {
  Layout layout;
  int64_t m, n, k;
  const float* a; // [m,k]; TN: stored [k,m]
  int64_t lda;
  const float* b; // [k,n]; NT: stored [n,k]
  int64_t ldb;
  float* c;
  int64_t ldc;
  const float* bias = nullptr; // [n]
  bool accumulate = false;
  float* column_sums = nullptr; // [n], TN only: += sums of B's columns
};
void gemm(Run& run, const Gemm& g);

// One block, k <= kBlockK, on the calling thread. A's panel i (kTileM rows) starts at a + i * a_panel, and its element
// (i, p) is at [i * as + p] (rows) or [p * as + i] (columns). B's panel j (kTileN columns) starts at b + j * panel and
// steps by bs along k; panels of B are whole, padding included.
struct Block {
  int64_t m, n, k;
  const float* a;
  int64_t as, a_panel;
  const float* b;
  int64_t bs, panel;
  float* c;
  int64_t ldc;
  const float* bias;
  bool add; // C += instead of C =
};
void multiply_rows(const Block& block);
void multiply_columns(const Block& block);
// The same as multiply_rows for m <= kFewRows and B as it lies, rows bs apart (panel is not used), n a multiple of kTileN.
// One row has but two sums in a tile of kTileN columns, and waits for each addition: here it goes over more columns.
constexpr int64_t kFewRows = 2;
constexpr int64_t kWideN = 8 * W; // columns at once
void multiply_few(const Block& block);
// The same for m <= 2 * kTileM and a B that comes from memory. Tile by tile only 128 bytes of a row of B are read at a
// time, which memory gives at less than half its speed; here it is read kSpan columns at a time, ahead of its use.
// sums: [m,kSpan] of scratch.
constexpr int64_t kSpan = 256;
void multiply_streamed(const Block& block, float* sums);

// Floats from one packed panel to the next: a cache line more than the panel, or all panels would start in one set of
// the first cache.
constexpr int64_t panel_floats(int64_t k, int64_t width) { return k * width + 16; }

// Panels of kTileN columns, each [k][kTileN] and panel_floats(k, kTileN) apart, the last padded with zeros.
// pack_rows: B stored [k,n]; pack_transposed: B stored [n,k].
void pack_rows(const float* b, int64_t ldb, int64_t k, int64_t n, float* panels);
void pack_transposed(const float* b, int64_t ldb, int64_t k, int64_t n, float* panels);
// A stored [k,m] into panels of kTileM columns, each [k][kTileM] and panel_floats(k, kTileM) apart, the last padded.
void pack_columns(const float* a, int64_t lda, int64_t k, int64_t m, float* panels);

} // namespace PTL_ISA
} // namespace ptl
