#include "../gemm.h"
#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {
namespace {

// Up to this rank the products are written out here: a register tile of gemm would be mostly padding. Which way is taken
// depends on sizes other than R alone, so a row has the same bits in any company.
constexpr int64_t kSmallRank = 16;
constexpr int64_t kTurnedFloats = kThreadScratchBytes / 4; // of `down`, turned
constexpr int64_t kTogether = 4;                           // of K, in registers
constexpr int64_t kColumnPiece = 32;

PTL_INLINE bool turned_fits(int64_t I, int64_t K) { return K <= kSmallRank && I <= kTurnedFloats / K; }
PTL_INLINE int64_t rows_per_task(int64_t products) { return products >= 65536 ? 1 : 65536 / products; }

// out[c] = factor * sum over i < n of row[i] * others[c * stride + i], each through 16 lanes.
template <int N>
PTL_INLINE void dots(const float* row, const float* others, int64_t stride, int64_t n, float factor, float* out) {
  Lanes total[N] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Lanes x = load_lanes(row + i);
    for (int c = 0; c < N; c++) total[c] = total[c] + x * load_lanes(others + c * stride + i);
  }
  for (int q = 0; q < kLanes / W; q++) {
    int64_t left = n - i - q * W;
    if (left <= 0) break;
    vf x = load(row + i + q * W, left);
    for (int c = 0; c < N; c++) total[c].v[q] += x * load(others + c * stride + i + q * W, left);
  }
  for (int c = 0; c < N; c++) out[c] = factor * sum(total[c]);
}

void dots(const float* row, const float* others, int64_t K, int64_t n, float factor, float* out) {
  constexpr int N = W == 4 ? 2 : int(kTogether); // as many sums as there are registers for
  int64_t k = 0;
  for (; k + N <= K; k += N) dots<N>(row, others + k * n, n, n, factor, out + k);
  for (; k < K; k++) dots<1>(row, others + k * n, n, n, factor, out + k);
}

// row[j] += strength * sum over k of hidden[k] * up[k,j], in order of k: the same bits for any width of vectors.
template <int N>
PTL_INLINE void add_columns(const float* hidden, const float* up, int64_t K, int64_t J, float strength, float* row,
                            int64_t count) {
  Vectors<N> total = {};
  for (int64_t k = 0; k < K; k++)
    for (int q = 0; q < N; q++) total.v[q] += hidden[k] * load(up + k * J + q * W, count - q * W);
  for (int q = 0; q < N; q++)
    store(row + q * W, load(row + q * W, count - q * W) + strength * total.v[q], count - q * W);
}

// out[c, j] += sum over rows of a[r, c] * b[r, j] for N of c and V vectors of j, the last of n lanes.
template <int N, int V>
PTL_INLINE void add_outer(const float* a, int64_t lda, const float* b, int64_t ldb, int64_t rows, float* out,
                          int64_t n) {
  vf total[N][V] = {};
  for (int64_t r = 0; r < rows; r++) {
    vf y[V];
    for (int v = 0; v < V; v++) y[v] = load(b + r * ldb + v * W, n - v * W);
    for (int c = 0; c < N; c++) {
      vf x = splat(a[r * lda + c]);
      for (int v = 0; v < V; v++) total[c][v] += x * y[v];
    }
  }
  for (int c = 0; c < N; c++)
    for (int v = 0; v < V; v++) {
      float* to = out + c * kColumnPiece + v * W;
      store(to, load(to, n - v * W) + total[c][v], n - v * W);
    }
}

template <int N>
PTL_INLINE void add_outer(const float* a, int64_t lda, const float* b, int64_t ldb, int64_t rows, float* out,
                          int64_t columns, int64_t) {
  int64_t j = 0;
  for (; j + 2 * W <= columns; j += 2 * W) add_outer<N, 2>(a, lda, b + j, ldb, rows, out + j, 2 * W);
  for (; j < columns; j += W) add_outer<N, 1>(a, lda, b + j, ldb, rows, out + j, columns - j < W ? columns - j : W);
}

// sums[k, j] (rows kColumnPiece apart) = sum over r < R of a[r, k] * b[r, j], j < columns, in blocks as gemm's.
void outer(const float* a, int64_t K, const float* b, int64_t ldb, int64_t R, float* sums, int64_t columns) {
  for_each(K * kColumnPiece, [&](int64_t i, int64_t n) { store(sums + i, vf{}, n); });
  for (int64_t r = 0; r < R; r += kBlockK) {
    const int64_t rows = R - r < kBlockK ? R - r : kBlockK;
    int64_t k = 0;
    for (; k + kTogether <= K; k += kTogether)
      add_outer<kTogether>(a + r * K + k, K, b + r * ldb, ldb, rows, sums + k * kColumnPiece, columns, 0);
    for (; k < K; k++) add_outer<1>(a + r * K + k, K, b + r * ldb, ldb, rows, sums + k * kColumnPiece, columns, 0);
  }
}

} // namespace

// hidden = x @ down; y[:, first:first+J] += strength * (hidden @ up)
void lora(Run& run, int64_t R, int64_t I, int64_t O, int64_t K, int64_t J, int32_t first, const float* x,
          const float* down, const float* up, const float* strength, float* y, float* hidden) {
  if (turned_fits(I, K))
    parallel_pieces(run, R, rows_per_task(K * I), [=](int64_t begin, int64_t end, float* turned) {
      for (int64_t i = 0; i < I; i++)
        for (int64_t k = 0; k < K; k++) turned[k * I + i] = down[i * K + k];
      for (int64_t r = begin; r < end; r++) dots(x + r * I, turned, K, I, 1.0f, hidden + r * K);
    });
  else gemm(run, {NN, R, K, I, x, I, down, K, hidden, K});
  if (*strength == 0.0f) return; // the base's own y, even where the adapter holds what is not finite
  parallel_pieces(run, R, rows_per_task(K * J), [=](int64_t begin, int64_t end, float*) {
    constexpr int kWide = 4;
    for (int64_t r = begin; r < end; r++) {
      const float* of_row = hidden + r * K;
      float* row = y + r * O + first;
      int64_t j = 0;
      for (; j + kWide * W <= J; j += kWide * W)
        add_columns<kWide>(of_row, up + j, K, J, *strength, row + j, kWide * W);
      for (; j < J; j += W) add_columns<1>(of_row, up + j, K, J, *strength, row + j, J - j < W ? J - j : W);
    }
  });
}
PTL_KERNEL(lora)

// dhidden = strength * dy[:, first:first+J] @ up^T
void lora_backward_hidden(Run& run, int64_t R, int64_t O, int64_t K, int64_t J, int32_t first, const float* dy,
                          const float* up, const float* strength, float* dhidden) {
  if (K <= kSmallRank) {
    parallel_pieces(run, R, rows_per_task(K * J), [=](int64_t begin, int64_t end, float*) {
      for (int64_t r = begin; r < end; r++) dots(dy + r * O + first, up, K, J, *strength, dhidden + r * K);
    });
    return;
  }
  gemm(run, {NT, R, K, J, dy + first, O, up, J, dhidden, K});
  parallel_pieces(run, R * K, 16384, [=](int64_t begin, int64_t end, float*) {
    for_each(end - begin, [&](int64_t i, int64_t n) {
      store(dhidden + begin + i, *strength * load(dhidden + begin + i, n), n);
    });
  });
}
PTL_KERNEL(lora_backward_hidden)

// dx (+)= dhidden @ down^T
void lora_backward_input(Run& run, int64_t R, int64_t I, int64_t K, int32_t accumulate, const float* dhidden,
                         const float* down, float* dx) {
  gemm(run, {NT, R, I, K, dhidden, K, down, K, dx, I, nullptr, accumulate != 0});
}
PTL_KERNEL(lora_backward_input)

// ddown += x^T @ dhidden; dup += strength * hidden^T @ dy[:, first:first+J]
void lora_backward_weight(Run& run, int64_t R, int64_t I, int64_t O, int64_t K, int64_t J, int32_t first,
                          const float* x, const float* hidden, const float* dhidden, const float* dy,
                          const float* strength, float* ddown, float* dup) {
  if (K <= kSmallRank) {
    const int64_t of_down = (I + kColumnPiece - 1) / kColumnPiece, of_up = (J + kColumnPiece - 1) / kColumnPiece;
    parallel(run, of_down + of_up, [=](int64_t task, float* sums) {
      const bool is_up = task >= of_down;
      const int64_t at = (is_up ? task - of_down : task) * kColumnPiece, whole = is_up ? J : I;
      const int64_t columns = whole - at < kColumnPiece ? whole - at : kColumnPiece;
      if (is_up) outer(hidden, K, dy + first + at, O, R, sums, columns);
      else outer(dhidden, K, x + at, I, R, sums, columns);
      for (int64_t k = 0; k < K; k++) {
        const float* from = sums + k * kColumnPiece;
        if (is_up)
          for_each(columns, [&](int64_t j, int64_t n) {
            float* to = dup + k * J + at + j;
            store(to, load(to, n) + *strength * load(from + j, n), n);
          });
        else
          for (int64_t i = 0; i < columns; i++) ddown[(at + i) * K + k] += from[i];
      }
    });
    return;
  }
  gemm(run, {TN, I, K, R, x, I, dhidden, K, ddown, K, nullptr, true});
  // The product without strength stands in shared scratch, which this layout of gemm leaves alone, some columns at a time.
  float* product = run.shared_scratch;
  const int64_t most = kSharedScratchBytes / 4 / K;
  for (int64_t j = 0; j < J; j += most) {
    const int64_t columns = J - j < most ? J - j : most;
    gemm(run, {TN, K, columns, R, hidden, K, dy + first + j, O, product, columns});
    parallel_pieces(run, K, rows_per_task(columns), [=](int64_t begin, int64_t end, float*) {
      for (int64_t k = begin; k < end; k++)
        for_each(columns, [&](int64_t c, int64_t n) {
          float* to = dup + k * J + j + c;
          store(to, load(to, n) + *strength * load(product + k * columns + c, n), n);
        });
    });
  }
}
PTL_KERNEL(lora_backward_weight)

} // namespace PTL_ISA
} // namespace ptl
