// Copies operands into panels the register tile streams through.
#include "gemm.h"

namespace ptl {
namespace PTL_ISA {

// Several panels are filled together: lone pieces of distant rows come slowly from memory, and evict each other from
// the first cache where the leading dimension is a power of two.
void pack_rows(const float* b, int64_t ldb, int64_t k, int64_t n, float* panels) {
  constexpr int kGroup = 64 / kTileN;
  const int64_t stride = panel_floats(k, kTileN);
  int64_t j = 0;
  for (; j + kGroup * kTileN <= n; j += kGroup * kTileN, panels += kGroup * stride)
    for (int64_t p = 0; p < k; p++) {
      const float* from = b + p * ldb + j;
      float* to = panels + p * kTileN;
      PTL_UNROLL for (int g = 0; g < kGroup; g++) {
        store(to + g * stride, load(from + g * kTileN));
        store(to + g * stride + W, load(from + g * kTileN + W));
      }
    }
  for (; j < n; j += kTileN, panels += stride) {
    int64_t width = n - j < kTileN ? n - j : kTileN;
    for (int64_t p = 0; p < k; p++) {
      store(panels + p * kTileN, load(b + p * ldb + j, width));
      store(panels + p * kTileN + W, load(b + p * ldb + j + W, width - W));
    }
  }
}

void pack_columns(const float* a, int64_t lda, int64_t k, int64_t m, float* panels) {
  constexpr int kGroup = 8;
  const int64_t stride = panel_floats(k, kTileM);
  int64_t i = 0;
  for (; i + kGroup * kTileM <= m; i += kGroup * kTileM, panels += kGroup * stride)
    for (int64_t p = 0; p < k; p++) {
      const float* from = a + p * lda + i;
      float* to = panels + p * kTileM;
      // memcpy of a constant size is one or two vector moves.
      PTL_UNROLL for (int g = 0; g < kGroup; g++) memcpy(to + g * stride, from + g * kTileM, sizeof(float) * kTileM);
    }
  for (; i < m; i += kTileM, panels += stride) {
    int64_t width = m - i < kTileM ? m - i : kTileM;
    for (int64_t p = 0; p < k; p++)
      for (int64_t q = 0; q < kTileM; q++) panels[p * kTileM + q] = q < width ? a[p * lda + i + q] : 0.0f;
  }
}

namespace {

typedef float v4_unaligned __attribute__((vector_size(16), aligned(4), may_alias));

// 4 rows of 4 become 4 columns, `step` floats apart.
PTL_INLINE void transpose_4x4(const float* from, int64_t rows, float* to, int64_t step) {
  v4 r0 = *(const v4_unaligned*)from, r1 = *(const v4_unaligned*)(from + rows);
  v4 r2 = *(const v4_unaligned*)(from + 2 * rows), r3 = *(const v4_unaligned*)(from + 3 * rows);
  v4 a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), b = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
  v4 c = __builtin_shufflevector(r0, r1, 2, 6, 3, 7), d = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  *(v4_unaligned*)to = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  *(v4_unaligned*)(to + step) = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  *(v4_unaligned*)(to + 2 * step) = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  *(v4_unaligned*)(to + 3 * step) = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

} // namespace

void pack_transposed(const float* b, int64_t ldb, int64_t k, int64_t n, float* panels) {
  for (int64_t j = 0; j < n; j += kTileN, panels += panel_floats(k, kTileN)) {
    int64_t width = n - j < kTileN ? n - j : kTileN;
    int64_t i = 0;
    for (; i + 4 <= width; i += 4) {
      const float* from = b + (j + i) * ldb;
      int64_t p = 0;
      for (; p + 4 <= k; p += 4) transpose_4x4(from + p, ldb, panels + p * kTileN + i, kTileN);
      for (; p < k; p++)
        for (int64_t q = 0; q < 4; q++) panels[p * kTileN + i + q] = from[q * ldb + p];
    }
    for (; i < kTileN; i++)
      for (int64_t p = 0; p < k; p++) panels[p * kTileN + i] = i < width ? b[(j + i) * ldb + p] : 0.0f;
  }
}

} // namespace PTL_ISA
} // namespace ptl
