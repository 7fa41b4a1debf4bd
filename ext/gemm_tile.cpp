// The register tile of the matrix product, and the loop over tiles of one block.
#include "gemm.h"

namespace ptl {
namespace PTL_ISA {
namespace {

// `count` register tiles, one below the other, against one panel of B.
struct Column {
  int64_t count, k;
  const float* a;
  int64_t as, a_panel;
  const float* b;
  int64_t bs;
  float* c;
  int64_t ldc;
  const float* bias;
  bool add;
};

// Every loop over the tile is unrolled whole, or GCC keeps the sums in memory; the loop over k is not, since GCC and V8
// then run out of registers (docs/log.md).
// clang-format off: it takes the unrolling pragma for part of the loop's body
template <int M, int V, bool columns>
void tiles(const Column& t) {
  const int64_t as = t.as, bs = t.bs, ldc = t.ldc;
  const float* a_tile = t.a;
  float* c = t.c;
  for (int64_t tile = t.count; tile > 0; tile--, a_tile += t.a_panel, c += M * ldc) {
    vf sums[M][V];
    PTL_UNROLL for (int i = 0; i < M; i++)
      PTL_UNROLL for (int j = 0; j < V; j++) sums[i][j] = vf{};
    const float* a = a_tile;
    const float* b = t.b;
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
    if (t.add)
      PTL_UNROLL for (int i = 0; i < M; i++)
        PTL_UNROLL for (int j = 0; j < V; j++) sums[i][j] = load(c + i * ldc + j * W) + sums[i][j];
    PTL_UNROLL for (int i = 0; i < M; i++)
      PTL_UNROLL for (int j = 0; j < V; j++) store(c + i * ldc + j * W, sums[i][j]);
  }
}
// clang-format on

typedef void (*TileFunction)(const Column&);

template <int V, bool columns> struct Tiles {
  static constexpr TileFunction by_rows[] = {
      tiles<1, V, columns>, tiles<2, V, columns>, tiles<3, V, columns>, tiles<4, V, columns>,
#if PTL_W == 16 || defined(__aarch64__)
      tiles<5, V, columns>, tiles<6, V, columns>, tiles<7, V, columns>, tiles<8, V, columns>,
#elif PTL_W == 8
      tiles<5, V, columns>,
#endif
  };
  static_assert(sizeof(by_rows) / sizeof(by_rows[0]) == kTileM, "one tile for each number of rows");
};

// Columns past n are computed on the padding of B and dropped here, so nothing outside C and bias is touched.
void edge(TileFunction function, Column t, int64_t m, int64_t n) {
  float whole[kTileM * kTileN];
  Column one = t;
  one.count = 1;
  one.c = whole;
  one.ldc = kTileN;
  one.bias = nullptr;
  one.add = false;
  for (; t.count > 0; t.count--, one.a += t.a_panel, t.c += m * t.ldc) {
    function(one);
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        float value = whole[i * kTileN + j];
        if (t.bias) value += t.bias[j];
        float* c = t.c + i * t.ldc + j;
        *c = t.add ? *c + value : value;
      }
  }
}

template <bool columns> void multiply(const Block& g) {
  const int64_t count = g.m / kTileM, rest = g.m % kTileM;
  for (int64_t j = 0; j < g.n; j += kTileN) {
    int64_t n = g.n - j < kTileN ? g.n - j : kTileN;
    const TileFunction* functions = n > W ? Tiles<2, columns>::by_rows : Tiles<1, columns>::by_rows;
    bool whole = n == kTileN || n == W;
    auto run = [&](int64_t first, int64_t tiles, int64_t m) {
      Column t{tiles,
               g.k,
               g.a + first * g.a_panel,
               g.as,
               g.a_panel,
               g.b + j / kTileN * g.panel,
               g.bs,
               g.c + first * kTileM * g.ldc + j,
               g.ldc,
               g.bias ? g.bias + j : nullptr,
               g.add};
      if (whole) functions[m - 1](t);
      else edge(functions[m - 1], t, m, n);
    };
    if (count) run(0, count, kTileM);
    if (rest) run(count, 1, rest);
  }
}

} // namespace

void multiply_few(const Block& g) {
  auto run = [&](TileFunction function, int64_t j) {
    function({1, g.k, g.a, g.as, 0, g.b + j, g.bs, g.c + j, g.ldc, g.bias ? g.bias + j : nullptr, g.add});
  };
  int64_t j = 0;
  if (g.m == 1)
    for (; j + kWideN <= g.n; j += kWideN) run(tiles<1, 8, false>, j);
  for (; j + kWideN / 2 <= g.n; j += kWideN / 2) run(g.m == 1 ? tiles<1, 4, false> : tiles<2, 4, false>, j);
  for (; j < g.n; j += kTileN) run(Tiles<2, false>::by_rows[g.m - 1], j);
}

void multiply_rows(const Block& block) { multiply<false>(block); }
void multiply_columns(const Block& block) { multiply<true>(block); }

} // namespace PTL_ISA
} // namespace ptl
