// The register tile of the matrix product, and the loop over tiles of one block.
#include "gemm.h"

namespace ptl {
namespace PTL_ISA {
namespace {

constexpr int kLine = 16;     // floats of a cache line
constexpr int64_t kDeep = 16; // rows of kSpan columns that lie in the first cache

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

// Some rows of B against M rows of A: sums go on where the rows before left them, so that they are those of one loop.
struct Piece {
  int64_t k;
  const float* a;
  int64_t as;
  const float* b;
  int64_t bs;
  float* sums; // [M][kTileN]
  bool first;  // sums begin at zero
  const float* fetch; // a row of kSpan columns of B that is needed next: from `column` on this piece asks for its share
  int64_t column;
};

// clang-format off: as above
template <int M, bool far> void add_piece(const Piece& t) {
  vf sums[M][2];
  PTL_UNROLL for (int i = 0; i < M; i++)
    PTL_UNROLL for (int j = 0; j < 2; j++) sums[i][j] = t.first ? vf{} : load(t.sums + i * kTileN + j * W);
  const float* a = t.a;
  const float* b = t.b;
  const float* fetch = t.fetch;
  const int64_t as = t.as, bs = t.bs;
  int64_t column = t.column;
  for (int64_t p = t.k; p > 0; p--) {
    if (far) {
      PTL_UNROLL for (int j = 0; j < kTileN; j += kLine) __builtin_prefetch(fetch + column + j);
      column += kTileN;
      if (column == kSpan) column = 0, fetch += bs;
    }
    vf row[2];
    PTL_UNROLL for (int j = 0; j < 2; j++) row[j] = load(b + j * W);
    PTL_UNROLL for (int i = 0; i < M; i++) {
      vf value = splat(a[i * as]);
      PTL_UNROLL for (int j = 0; j < 2; j++) sums[i][j] += value * row[j];
    }
    a++;
    b += bs;
  }
  PTL_UNROLL for (int i = 0; i < M; i++)
    PTL_UNROLL for (int j = 0; j < 2; j++) store(t.sums + i * kTileN + j * W, sums[i][j]);
}
// clang-format on

typedef void (*PieceFunction)(const Piece&);

template <bool far> struct Pieces {
  static constexpr PieceFunction by_rows[] = {
      add_piece<1, far>, add_piece<2, far>, add_piece<3, far>, add_piece<4, far>,
#if PTL_W == 16 || defined(__aarch64__)
      add_piece<5, far>, add_piece<6, far>, add_piece<7, far>, add_piece<8, far>,
#elif PTL_W == 8
      add_piece<5, far>,
#endif
  };
};

} // namespace

void multiply_streamed(const Block& g, float* sums) {
  for (int64_t j = 0; j < g.n; j += kSpan) {
    const int64_t width = g.n - j < kSpan ? g.n - j : kSpan, panels = width / kTileN;
    for (int64_t p = 0; p < g.k; p += kDeep) {
      const int64_t k = g.k - p < kDeep ? g.k - p : kDeep;
      const bool last = p + k == g.k;
      constexpr int64_t kShare = kDeep * kTileN;
      const float* next = !last ? g.b + (p + k) * g.bs + j : g.b + j + kSpan;
      const bool far = width == kSpan && k == kDeep && (!last || j + 2 * kSpan <= g.n);
      for (int64_t panel = 0; panel < panels; panel++)
        for (int64_t i = 0; i < g.m; i += kTileM) {
          const int64_t m = g.m - i < kTileM ? g.m - i : kTileM;
          const Piece piece{k,
                            g.a + i / kTileM * g.a_panel + p,
                            g.as,
                            g.b + p * g.bs + j + panel * kTileN,
                            g.bs,
                            sums + (i * panels + panel * m) * kTileN,
                            p == 0,
                            next + panel * kShare / kSpan * g.bs,
                            panel * kShare % kSpan};
          (far && i == 0 ? Pieces<true>::by_rows : Pieces<false>::by_rows)[m - 1](piece);
        }
    }
    for (int64_t i = 0; i < g.m; i++) {
      const int64_t above = i / kTileM * kTileM, m = g.m - above < kTileM ? g.m - above : kTileM;
      for (int64_t panel = 0; panel < panels; panel++)
        for (int h = 0; h < 2; h++) {
          const int64_t at = panel * kTileN + h * W;
          float* c = g.c + i * g.ldc + j + at;
          vf value = load(sums + (above * panels + panel * m + i - above) * kTileN + h * W);
          if (g.bias) value += load(g.bias + j + at);
          store(c, g.add ? load(c) + value : value);
        }
    }
  }
}

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
