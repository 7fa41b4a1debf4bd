#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {
namespace {

constexpr float kEpsilon = 1e-5f;
constexpr int64_t kRows = 32;   // rows a task takes
constexpr int64_t kParts = 128; // most partial sums of dweight and dbias

// Shared scratch holds `parts` rows of dweight and dbias; registry.cpp refuses a C that leaves room for none.
PTL_INLINE int64_t parts_that_fit(int64_t C) {
  int64_t parts = kSharedScratchBytes / 4 / (2 * C);
  return parts < kParts ? parts : kParts;
}

// dx of one row, from the sums over it of g = dy * weight and of g * xhat.
PTL_INLINE void store_gradient(int64_t C, int32_t accumulate, const float* drow, const float* row, const float* weight,
                               float centre, float scale, float g_sum, float gx_sum, float* dx) {
  float g_mean = g_sum / float(C), gx_mean = gx_sum / float(C);
  for_each(C, [&](int64_t c, int64_t n) {
    vf xhat = (load(row + c, n) - centre) * scale;
    vf value = (load(drow + c, n) * load(weight + c, n) - g_mean - xhat * gx_mean) * scale;
    if (accumulate) value = load(dx + c, n) + value;
    store(dx + c, value, n);
  });
}

} // namespace

// y = (x - mean) * rstd * weight + bias, each row by its own mean and biased variance, in two passes.
void layernorm(Run& run, int64_t R, int64_t C, const float* x, const float* weight, const float* bias, float* y,
               float* mean, float* rstd) {
  parallel_pieces(run, R, kRows, [=](int64_t begin, int64_t end, float*) {
    for (int64_t r = begin; r < end; r++) {
      const float* row = x + r * C;
      float centre = sum_of(C, [&](int64_t c, int64_t n) { return load(row + c, n); }) / float(C);
      float variance = sum_of(C,
                              [&](int64_t c, int64_t n) {
                                vf d = load(row + c, n) - centre;
                                return d * d;
                              }) /
                       float(C);
      float scale = 1.0f / square_root(splat(variance + kEpsilon))[0];
      mean[r] = centre;
      rstd[r] = scale;
      for_each(C, [&](int64_t c, int64_t n) {
        store(y + r * C + c, (load(row + c, n) - centre) * scale * load(weight + c, n) + load(bias + c, n), n);
      });
    }
  });
}
PTL_KERNEL(layernorm)

// With xhat = (x - mean) * rstd and g = dy * weight:
// dx (+)= rstd * (g - mean(g) - xhat * mean(g * xhat)); dweight += sum over rows of dy * xhat; dbias += sum of dy.
// The sums over rows are taken in parts of a size that depends on R and C alone.
void layernorm_backward(Run& run, int64_t R, int64_t C, int32_t accumulate, const float* dy, const float* x,
                        const float* weight, const float* mean, const float* rstd, float* dx, float* dweight,
                        float* dbias) {
  int64_t most = parts_that_fit(C), rows = (R + most - 1) / most;
  rows = rows < kRows ? kRows : rows;
  int64_t parts = (R + rows - 1) / rows;
  float* partial = run.shared_scratch;
  parallel(run, parts, [=](int64_t part, float*) {
    float* sums = partial + part * 2 * C;
    for_each(2 * C, [&](int64_t c, int64_t n) { store(sums + c, vf{}, n); });
    int64_t end = (part + 1) * rows < R ? (part + 1) * rows : R;
    for (int64_t r = part * rows; r < end; r++) {
      const float* drow = dy + r * C;
      const float* row = x + r * C;
      float centre = mean[r], scale = rstd[r];
      Lanes total = {}, weighted = {};
      for (int64_t c = 0; c < C; c += kLanes)
        for (int q = 0; q < kLanes / W; q++) {
          int64_t at = c + q * W, n = C - at;
          if (n <= 0) break;
          vf d = load(drow + at, n);
          vf xhat = (load(row + at, n) - centre) * scale;
          vf g = d * load(weight + at, n); // zero past the end, where d is
          total.v[q] += g;
          weighted.v[q] += keep(g * xhat, n);
          store(sums + at, load(sums + at, n) + d * xhat, n);
          store(sums + C + at, load(sums + C + at, n) + d, n);
        }
      store_gradient(C, accumulate, drow, row, weight, centre, scale, sum(total), sum(weighted), dx + r * C);
    }
  });
  parallel_pieces(run, C, 64, [=](int64_t begin, int64_t end, float*) {
    for_each(end - begin, [&](int64_t i, int64_t n) {
      int64_t c = begin + i;
      vf of_weight = {}, of_bias = {};
      for (int64_t part = 0; part < parts; part++) {
        of_weight += load(partial + part * 2 * C + c, n);
        of_bias += load(partial + part * 2 * C + C + c, n);
      }
      store(dweight + c, load(dweight + c, n) + of_weight, n);
      store(dbias + c, load(dbias + c, n) + of_bias, n);
    });
  });
}
PTL_KERNEL(layernorm_backward)

// The dx of layernorm_backward alone, with the same bits.
void layernorm_backward_input(Run& run, int64_t R, int64_t C, int32_t accumulate, const float* dy, const float* x,
                              const float* weight, const float* mean, const float* rstd, float* dx) {
  parallel_pieces(run, R, kRows, [=](int64_t begin, int64_t end, float*) {
    for (int64_t r = begin; r < end; r++) {
      const float* drow = dy + r * C;
      const float* row = x + r * C;
      float centre = mean[r], scale = rstd[r];
      Lanes total = {}, weighted = {};
      for (int64_t c = 0; c < C; c += kLanes)
        for (int q = 0; q < kLanes / W; q++) {
          int64_t at = c + q * W, n = C - at;
          if (n <= 0) break;
          vf g = load(drow + at, n) * load(weight + at, n); // zero past the end
          total.v[q] += g;
          weighted.v[q] += keep(g * ((load(row + at, n) - centre) * scale), n);
        }
      store_gradient(C, accumulate, drow, row, weight, centre, scale, sum(total), sum(weighted), dx + r * C);
    }
  });
}
PTL_KERNEL(layernorm_backward_input)

} // namespace PTL_ISA
} // namespace ptl
