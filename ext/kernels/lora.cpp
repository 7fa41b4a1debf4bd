#include "../gemm.h"
#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {
namespace {

PTL_INLINE int64_t rows_per_task(int64_t products) { return products >= 65536 ? 1 : 65536 / products; }

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

} // namespace

// hidden = x @ down; y[:, first:first+J] += strength * (hidden @ up)
void lora(Run& run, int64_t R, int64_t I, int64_t O, int64_t K, int64_t J, int32_t first, const float* x,
          const float* down, const float* up, const float* strength, float* y, float* hidden) {
  gemm(run, {NN, R, K, I, x, I, down, K, hidden, K});
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
