// Splits a matrix product over threads, by outputs only.
#include "gemm.h"

#include "kernel.h"

namespace ptl {
namespace PTL_ISA {
namespace {

constexpr int64_t kPackedFloats = kSharedScratchBytes / 4; // packed B, shared by the threads
constexpr int64_t kColumns = 512;                          // columns of packed B
constexpr int64_t kTaskColumns = 64;                       // columns one packing task copies
constexpr int64_t kFarFloats = 3 << 16;                    // a model with such matrices does not stay in a cache
constexpr int64_t kTaskProducts = int64_t(1) << 16;        // less is not worth waking a thread for

PTL_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
PTL_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
PTL_INLINE int64_t divide_up(int64_t n, int64_t step) { return (n + step - 1) / step; }

void pack(const Gemm& g, int64_t p, int64_t k, int64_t j, int64_t n, float* panels) {
  if (g.layout == NT) pack_transposed(g.b + j * g.ldb + p, g.ldb, k, n, panels);
  else pack_rows(g.b + p * g.ldb + j, g.ldb, k, n, panels);
}

// NN and NT with many rows: B is packed once, by all threads; then threads take rows.
void many_rows(Run& run, const Gemm& g) {
  float* packed = run.shared_scratch;
  int64_t rows = round_up(divide_up(g.m, 4 * run.threads), kTileM);
  rows = most(kTileM, least(rows, 64 / kTileM * kTileM));
  for (int64_t j = 0; j < g.n; j += kColumns) {
    int64_t n = least(kColumns, g.n - j), panels = divide_up(n, kTileN), strips = divide_up(n, kTaskColumns);
    const int64_t block_floats = panels * panel_floats(kBlockK, kTileN);
    int64_t depth = kPackedFloats / block_floats * kBlockK;
    for (int64_t p = 0; p < g.k; p += depth) {
      int64_t k = least(depth, g.k - p), blocks = divide_up(k, kBlockK);
      parallel(run, blocks * strips, [=](int64_t task, float*) {
        int64_t block = task / strips, strip = task % strips * kTaskColumns;
        int64_t deep = least(kBlockK, k - block * kBlockK);
        pack(g, p + block * kBlockK, deep, j + strip, least(kTaskColumns, n - strip),
             packed + block * block_floats + strip / kTileN * panel_floats(deep, kTileN));
      });
      parallel_pieces(run, g.m, rows, [=](int64_t begin, int64_t end, float*) {
        for (int64_t block = 0; block < blocks; block++) {
          int64_t q = p + block * kBlockK, deep = least(kBlockK, p + k - q);
          multiply_rows({end - begin, n, deep, g.a + begin * g.lda + q, g.lda, kTileM * g.lda,
                         packed + block * block_floats, kTileN, panel_floats(deep, kTileN), g.c + begin * g.ldc + j,
                         g.ldc, q == 0 && g.bias ? g.bias + j : nullptr, g.accumulate || q > 0});
        }
      });
    }
  }
}

// NN and NT with few rows (decoding): threads take columns, and pack only what cannot be streamed as it lies.
void few_rows(Run& run, const Gemm& g) {
  const int64_t step = g.m <= kFewRows ? kWideN : kTileN, share = run.threads == 1 ? 1 : 4 * run.threads;
  const int64_t worth = most(divide_up(kTaskProducts, g.m * g.k), divide_up(g.n, share));
  const bool far = g.layout == NN && g.m > 1 && g.m <= 2 * kTileM && g.k * g.n >= kFarFloats;
  const int64_t columns = round_up(least(kColumns, worth), far ? kSpan : step);
  parallel_pieces(run, g.n, columns, [=](int64_t begin, int64_t end, float* scratch) {
    int64_t j = begin;
    if (far || (g.layout == NN && g.m <= kFewRows)) {
      const int64_t whole = (end - begin) / kTileN * kTileN;
      for (int64_t p = 0; whole && p < g.k; p += kBlockK) {
        const Block block{g.m, whole, least(kBlockK, g.k - p), g.a + p, g.lda, kTileM * g.lda, g.b + p * g.ldb + j,
                          g.ldb, 0, g.c + j, g.ldc, p == 0 && g.bias ? g.bias + j : nullptr, g.accumulate || p > 0};
        if (far) multiply_streamed(block, scratch);
        else multiply_few(block);
      }
      j += whole;
    }
    for (; j < end; j += kTileN) {
      int64_t n = least(kTileN, end - j);
      bool direct = g.layout == NN && n == kTileN && g.m <= 2 * kTileM;
      for (int64_t p = 0; p < g.k; p += kBlockK) {
        int64_t k = least(kBlockK, g.k - p);
        if (!direct) pack(g, p, k, j, n, scratch);
        multiply_rows({g.m, n, k, g.a + p, g.lda, kTileM * g.lda, direct ? g.b + p * g.ldb + j : scratch,
                       direct ? g.ldb : kTileN, 0, g.c + j, g.ldc, p == 0 && g.bias ? g.bias + j : nullptr,
                       g.accumulate || p > 0});
      }
    }
  });
}

// sums += sums over k of packed B's columns, four panels at a time so that additions overlap.
void add_column_sums(const float* panels, int64_t k, int64_t n, float* sums) {
  constexpr int kGroup = 4;
  const int64_t stride = panel_floats(k, kTileN);
  for (int64_t j = 0; j < n; j += kGroup * kTileN, panels += kGroup * stride) {
    vf total[kGroup][2] = {};
    const int64_t count = least(kGroup, divide_up(n - j, kTileN));
    for (int64_t p = 0; p < k; p++)
      PTL_UNROLL for (int g = 0; g < kGroup; g++) {
        if (g >= count) continue;
        const float* row = panels + g * stride + p * kTileN;
        total[g][0] += load(row);
        total[g][1] += load(row + W);
      }
    for (int g = 0; g < count; g++)
      for (int h = 0; h < 2; h++) {
        int64_t at = j + g * kTileN + h * W;
        if (at < n) store(sums + at, load(sums + at, n - at) + total[g][h], n - at);
      }
  }
}

// TN: threads take blocks of C and walk all of k, packing their own parts of A and B.
void transposed(Run& run, const Gemm& g) {
  const int64_t kMost = 256;
  // As few and as large blocks as keep every thread busy: each packs rows of A and B of its own.
  int64_t down = divide_up(g.m, kMost), across = divide_up(g.n, kMost);
  while (down * across < run.threads && (g.m > 32 * down || g.n > 64 * across))
    (g.n > 64 * across && g.n * down >= g.m * across ? across : g.m > 32 * down ? down : across)++;
  const int64_t m = round_up(divide_up(g.m, down), kTileM), n = round_up(divide_up(g.n, across), kTileN);
  const int64_t tasks_down = divide_up(g.m, m);
  parallel(run, tasks_down * divide_up(g.n, n), [=](int64_t task, float* scratch) {
    int64_t i = task % tasks_down * m, j = task / tasks_down * n;
    int64_t rows = least(m, g.m - i), columns = least(n, g.n - j);
    float* a = scratch;
    float* b = scratch + divide_up(kMost + kTileM, kTileM) * panel_floats(kBlockK, kTileM);
    for (int64_t p = 0; p < g.k; p += kBlockK) {
      int64_t k = least(kBlockK, g.k - p);
      pack_columns(g.a + p * g.lda + i, g.lda, k, rows, a);
      pack_rows(g.b + p * g.ldb + j, g.ldb, k, columns, b);
      if (g.column_sums && i == 0) add_column_sums(b, k, columns, g.column_sums + j);
      multiply_columns({rows, columns, k, a, kTileM, panel_floats(k, kTileM), b, kTileN, panel_floats(k, kTileN),
                        g.c + i * g.ldc + j, g.ldc, nullptr, g.accumulate || p > 0});
    }
  });
}

} // namespace

void gemm(Run& run, const Gemm& g) {
  if (g.layout == TN) transposed(run, g);
  else if (g.m <= 16 * kTileM) few_rows(run, g);
  else many_rows(run, g);
}

} // namespace PTL_ISA
} // namespace ptl
