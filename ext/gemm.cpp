// Splits a matrix product over threads, by outputs only.
#include "gemm.h"

#include "kernel.h"

namespace ptl {
namespace PTL_ISA {
namespace {

constexpr int64_t kPackedFloats = kSharedScratchBytes / 4;  // packed B, shared by the threads
constexpr int64_t kColumns = 512;                    // columns of packed B
constexpr int64_t kTaskColumns = 64;                 // columns one packing task copies

PTL_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
PTL_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
PTL_INLINE int64_t divide_up(int64_t n, int64_t step) { return (n + step - 1) / step; }

void pack(const Gemm& g, int64_t p, int64_t k, int64_t j, int64_t n, float* panels) {
  if (g.layout == NT)
    pack_transposed(g.b + j * g.ldb + p, g.ldb, k, n, panels);
  else
    pack_rows(g.b + p * g.ldb + j, g.ldb, k, n, panels);
}

// NN and NT with many rows: B is packed once, by all threads; then threads take rows.
void many_rows(Run& run, const Gemm& g) {
  float* packed = run.shared_scratch;
  int64_t rows = round_up(divide_up(g.m, 4 * run.threads), kTileM);
  rows = most(kTileM, least(rows, 64 / kTileM * kTileM));
  for (int64_t j = 0; j < g.n; j += kColumns) {
    int64_t n = least(kColumns, g.n - j), padded = round_up(n, kTileN);
    int64_t depth = most(kBlockK, kPackedFloats / padded / kBlockK * kBlockK);
    for (int64_t p = 0; p < g.k; p += depth) {
      int64_t k = least(depth, g.k - p), blocks = divide_up(k, kBlockK), strips = divide_up(n, kTaskColumns);
      parallel(run, blocks * strips, [=](int64_t task, float*) {
        int64_t q = task / strips * kBlockK, strip = task % strips * kTaskColumns;
        int64_t deep = least(kBlockK, k - q);
        pack(g, p + q, deep, j + strip, least(kTaskColumns, n - strip), packed + q * padded + strip * deep);
      });
      parallel_pieces(run, g.m, rows, [=](int64_t begin, int64_t end, float*) {
        for (int64_t q = 0; q < k; q += kBlockK) {
          int64_t deep = least(kBlockK, k - q);
          bool first = p + q == 0;
          multiply_rows({end - begin, n, deep, g.a + begin * g.lda + p + q, g.lda, kTileM * g.lda, packed + q * padded, kTileN,
                         deep * kTileN, g.c + begin * g.ldc + j, g.ldc, first && g.bias ? g.bias + j : nullptr,
                         g.accumulate || !first});
        }
      });
    }
  }
}

// NN and NT with few rows (decoding): threads take columns, and pack only what cannot be streamed as it lies.
void few_rows(Run& run, const Gemm& g) {
  int64_t columns = most(kTileN, least(kColumns, round_up(divide_up(g.n, 4 * run.threads), kTileN)));
  parallel_pieces(run, g.n, columns, [=](int64_t begin, int64_t end, float* scratch) {
    for (int64_t j = begin; j < end; j += kTileN) {
      int64_t n = least(kTileN, end - j);
      bool direct = g.layout == NN && n == kTileN && g.m <= 2 * kTileM;
      for (int64_t p = 0; p < g.k; p += kBlockK) {
        int64_t k = least(kBlockK, g.k - p);
        if (!direct) pack(g, p, k, j, n, scratch);
        multiply_rows({g.m, n, k, g.a + p, g.lda, kTileM * g.lda, direct ? g.b + p * g.ldb + j : scratch, direct ? g.ldb : kTileN, 0,
                       g.c + j, g.ldc, p == 0 && g.bias ? g.bias + j : nullptr, g.accumulate || p > 0});
      }
    }
  });
}

void add_column_sums(const float* b, int64_t ldb, int64_t k, int64_t n, float* sums) {
  for_each(n, [&](int64_t j, int64_t count) {
    vf total = {};
    for (int64_t p = 0; p < k; p++) total += load(b + p * ldb + j, count);
    store(sums + j, load(sums + j, count) + total, count);
  });
}

// TN: threads take blocks of C and walk all of k, packing their own parts of A and B.
void transposed(Run& run, const Gemm& g) {
  const int64_t kMostM = 256 / kTileM * kTileM, kMostN = 256;
  int64_t down = divide_up(g.m, kMostM), across = divide_up(g.n, kMostN);
  int64_t wanted = run.threads > 1 ? 2 * run.threads : 1;
  if (down * across < wanted) across = most(across, least(divide_up(wanted, down), divide_up(g.n, 64)));
  if (down * across < wanted) down = most(down, least(divide_up(wanted, across), divide_up(g.m, 32)));
  int64_t m = round_up(divide_up(g.m, down), kTileM), n = round_up(divide_up(g.n, across), kTileN);
  down = divide_up(g.m, m), across = divide_up(g.n, n);
  parallel(run, down * across, [=](int64_t task, float* scratch) {
    int64_t i = task % down * m, j = task / down * n;
    int64_t rows = least(m, g.m - i), columns = least(n, g.n - j);
    float* a = scratch;
    float* b = scratch + (kMostM + kTileM) * kBlockK;
    for (int64_t p = 0; p < g.k; p += kBlockK) {
      int64_t k = least(kBlockK, g.k - p);
      pack_columns(g.a + p * g.lda + i, g.lda, k, rows, a);
      pack_rows(g.b + p * g.ldb + j, g.ldb, k, columns, b);
      if (g.column_sums && i == 0) add_column_sums(g.b + p * g.ldb + j, g.ldb, k, columns, g.column_sums + j);
      bool add = g.accumulate || p > 0;
      multiply_columns({rows, columns, k, a, kTileM, kTileM * k, b, kTileN, k * kTileN, g.c + i * g.ldc + j, g.ldc,
                        nullptr, add});
    }
  });
}

}  // namespace

void gemm(Run& run, const Gemm& g) {
  if (g.layout == TN)
    transposed(run, g);
  else if (g.m <= 4 * kTileM)
    few_rows(run, g);
  else
    many_rows(run, g);
}

}  // namespace PTL_ISA
}  // namespace ptl
