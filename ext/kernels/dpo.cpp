#include "../elementary.h"
#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {
namespace {

PTL_INLINE int64_t pairs_per_task(int64_t T) { return T >= 8192 ? 1 : 8192 / T; }
PTL_INLINE float exp_of(float x) { return exp(splat(x))[0]; }
PTL_INLINE float magnitude(float x) { return x < 0.0f ? -x : x; }

// log(1 + e) for 0 <= e <= 1: what 1 + e rounds away is put back as the quotient.
PTL_INLINE float log_of_one_plus(float e) {
  float u = 1.0f + e;
  return u == 1.0f ? e : log(u) * (e / (u - 1.0f));
}

// log(1 + e^-m), for any m.
PTL_INLINE float softplus_of_minus(float m) {
  return (m < 0.0f ? -m : 0.0f) + log_of_one_plus(exp_of(-magnitude(m)));
}

// 1 / (1 + e^m), for any m.
PTL_INLINE float sigmoid_of_minus(float m) {
  float e = exp_of(-magnitude(m));
  return (m < 0.0f ? 1.0f : e) / (1.0f + e);
}

} // namespace

// margins = beta * ((log p - reference of the chosen) - (the same of the rejected)); loss = {mean of log(1 + e^-margin),
// S}
void dpo(Run& run, int64_t S, int64_t T, const float* losses, const float* reference, const float* beta,
         float* margins, float* loss) {
  parallel_pieces(run, S, pairs_per_task(T), [=](int64_t begin, int64_t end, float*) {
    auto gained = [=](int64_t b) {
      return -sum_of(T, [=](int64_t t, int64_t n) { return load(losses + b * T + t, n); }) - reference[b];
    };
    for (int64_t i = begin; i < end; i++) margins[i] = beta[0] * (gained(i) - gained(S + i));
  });
  float total = 0.0f;
  for (int64_t i = 0; i < S; i++) total += softplus_of_minus(margins[i]);
  loss[0] = total / float(S);
  loss[1] = float(S);
}
PTL_KERNEL(dpo)

// dlosses = dloss * beta / S / (1 + e^margin) in the rows of the chosen, minus that in those of the rejected
void dpo_backward(Run& run, int64_t S, int64_t T, const float* margins, const float* beta, const float* dloss,
                  float* dlosses) {
  float scale = dloss[0] * beta[0] / float(S);
  parallel_pieces(run, S, pairs_per_task(T), [=](int64_t begin, int64_t end, float*) {
    for (int64_t i = begin; i < end; i++) {
      vf each = splat(scale * sigmoid_of_minus(margins[i]));
      for_each(T, [=](int64_t t, int64_t n) { store(dlosses + i * T + t, each, n); });
      for_each(T, [=](int64_t t, int64_t n) { store(dlosses + (S + i) * T + t, -each, n); });
    }
  });
}
PTL_KERNEL(dpo_backward)

} // namespace PTL_ISA
} // namespace ptl
