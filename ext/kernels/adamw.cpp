#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {

// One AdamW step with clipping by the global norm; recipe = [lr, beta1, beta2, eps, weight_decay, clip, correction1,
// correction2], correction_i = 1 / (1 - beta_i^step). A norm that is not finite changes nothing: the last good weights
// stay, and the caller sees the norm.
void adamw(Run& run, int64_t N, int32_t decayed, const float* grad, const float* norm, const float* recipe,
           float* param, float* m, float* v) {
  if (!(norm[0] - norm[0] == 0.0f)) return;
  const float lr = recipe[0], beta1 = recipe[1], beta2 = recipe[2], eps = recipe[3], clip = recipe[5];
  const float correction1 = recipe[6], correction2 = recipe[7];
  const float keep_param = decayed ? 1.0f - lr * recipe[4] : 1.0f;
  const float scale = clip > 0.0f && norm[0] > clip ? clip / norm[0] : 1.0f;
  const float rest1 = 1.0f - beta1, rest2 = 1.0f - beta2;
  parallel_pieces(run, N, 16384, [=](int64_t begin, int64_t end, float*) {
    for_each(end - begin, [&](int64_t i, int64_t n) {
      int64_t at = begin + i;
      vf g = load(grad + at, n) * scale;
      vf first = load(m + at, n) * beta1 + g * rest1;
      vf second = load(v + at, n) * beta2 + g * g * rest2;
      vf step = lr * (first * correction1) / (square_root(second * correction2) + eps);
      store(m + at, first, n);
      store(v + at, second, n);
      store(param + at, load(param + at, n) * keep_param - step, n);
    });
  });
}
PTL_KERNEL(adamw)

} // namespace PTL_ISA
} // namespace ptl
