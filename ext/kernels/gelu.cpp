#include "../elementary.h"
#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {
namespace {

// 0.5 (1 + tanh u) = logistic(2 u), u = sqrt(2/pi) (x + 0.044715 x^3): one exponential and no cancellation.
// Beyond |x| = 10 the logistic is 0 or 1 to the last bit that matters, so x is clamped and x^3 cannot overflow.
constexpr float kTwice = 1.59576912f;  // 2 sqrt(2/pi)
constexpr float kCube = 0.044715f;

PTL_INLINE vf clamp(vf x) { return at_least(at_most(x, splat(10.0f)), splat(-10.0f)); }

}  // namespace

// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), GPT-2's gelu_new
void gelu(Run& run, int64_t N, const float* x, float* y) {
  parallel_pieces(run, N, 8192, [=](int64_t begin, int64_t end, float*) {
    for_each(end - begin, [&](int64_t i, int64_t n) {
      int64_t at = begin + i;
      vf value = load(x + at, n), c = clamp(value);
      store(y + at, value * logistic(kTwice * c * (1.0f + kCube * (c * c))), n);
    });
  });
}
PTL_KERNEL(gelu)

// dx = dy (s + x s (1 - s) d(2u)/dx), s = logistic(2u)
void gelu_backward(Run& run, int64_t N, const float* dy, const float* x, float* dx) {
  parallel_pieces(run, N, 8192, [=](int64_t begin, int64_t end, float*) {
    for_each(end - begin, [&](int64_t i, int64_t n) {
      int64_t at = begin + i;
      vf c = clamp(load(x + at, n)), cc = c * c;
      vf s = logistic(kTwice * c * (1.0f + kCube * cc));
      vf slope = kTwice * (1.0f + 3.0f * kCube * cc);
      store(dx + at, load(dy + at, n) * (s + c * s * (1.0f - s) * slope), n);
    });
  });
}
PTL_KERNEL(gelu_backward)

}  // namespace PTL_ISA
}  // namespace ptl
