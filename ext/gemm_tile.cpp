// The register tile of the matrix product, and the loop over tiles of one block.
#include "gemm.h"

namespace ptl {
namespace PTL_ISA {
namespace {

struct Tile {
  int64_t k;
  const float* a;
  int64_t as;
  const float* b;
  int64_t bs;
  float* c;
  int64_t ldc;
  const float* bias;
  bool add;
};

// Every loop over the tile is unrolled whole, or GCC keeps the sums in memory.

template <int M, int V, bool columns>
void tile(const Tile& t) {
  vf sums[M][V];
  PTL_UNROLL for (int i = 0; i < M; i++)
    PTL_UNROLL for (int j = 0; j < V; j++) sums[i][j] = vf{};
  const float* a = t.a;
  const float* b = t.b;
  const int64_t as = t.as, bs = t.bs;
  // Not unrolled along k: both GCC and V8 then run out of registers (docs/log.md).
  for (int64_t p = t.k; p > 0; p--) {
    vf row[V];
    PTL_UNROLL for (int j = 0; j < V; j++) row[j] = load(b + j * W);
    PTL_UNROLL for (int i = 0; i < M; i++) {
      vf value = splat(columns ? a[i] : a[i * as]);
      PTL_UNROLL for (int j = 0; j < V; j++) sums[i][j] += value * row[j];
    }
    a += columns ? as : 1;
    b += bs;
  }
  if (t.bias)
    PTL_UNROLL for (int j = 0; j < V; j++) {
      vf bias = load(t.bias + j * W);
      PTL_UNROLL for (int i = 0; i < M; i++) sums[i][j] += bias;
    }
  float* c = t.c;
  const int64_t ldc = t.ldc;
  if (t.add)
    PTL_UNROLL for (int i = 0; i < M; i++)
      PTL_UNROLL for (int j = 0; j < V; j++) sums[i][j] = load(c + i * ldc + j * W) + sums[i][j];
  PTL_UNROLL for (int i = 0; i < M; i++)
    PTL_UNROLL for (int j = 0; j < V; j++) store(c + i * ldc + j * W, sums[i][j]);
}

typedef void (*TileFunction)(const Tile&);

template <int V, bool columns>
struct Tiles {
  static constexpr TileFunction by_rows[] = {
      tile<1, V, columns>, tile<2, V, columns>, tile<3, V, columns>, tile<4, V, columns>, tile<5, V, columns>,
#if PTL_W == 16 || defined(__aarch64__)
      tile<6, V, columns>, tile<7, V, columns>, tile<8, V, columns>,
#endif
  };
  static_assert(sizeof(by_rows) / sizeof(by_rows[0]) == kTileM, "one tile for each number of rows");
};

// Columns past n are computed on the padding of B and dropped here, so nothing outside C and bias is touched.
void edge(TileFunction function, const Tile& t, int64_t m, int64_t n) {
  float whole[kTileM * kTileN];
  Tile inner = t;
  inner.c = whole;
  inner.ldc = kTileN;
  inner.bias = nullptr;
  inner.add = false;
  function(inner);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      float value = whole[i * kTileN + j];
      if (t.bias) value += t.bias[j];
      float* c = t.c + i * t.ldc + j;
      *c = t.add ? *c + value : value;
    }
}

template <bool columns>
void multiply(const Block& g) {
  for (int64_t j = 0; j < g.n; j += kTileN) {
    int64_t n = g.n - j < kTileN ? g.n - j : kTileN;
    const TileFunction* functions = n > W ? Tiles<2, columns>::by_rows : Tiles<1, columns>::by_rows;
    bool whole = n == kTileN || n == W;
    Tile t{g.k, g.a, g.as, g.b + j / kTileN * g.panel, g.bs, g.c + j, g.ldc, g.bias ? g.bias + j : nullptr, g.add};
    for (int64_t i = 0; i < g.m; i += kTileM) {
      int64_t m = g.m - i < kTileM ? g.m - i : kTileM;
      t.a = g.a + i / kTileM * g.a_panel;
      t.c = g.c + i * g.ldc + j;
      if (whole)
        functions[m - 1](t);
      else
        edge(functions[m - 1], t, m, n);
    }
  }
}

}  // namespace

void multiply_rows(const Block& block) { multiply<false>(block); }
void multiply_columns(const Block& block) { multiply<true>(block); }

}  // namespace PTL_ISA
}  // namespace ptl
