#include "../elementary.h"
#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {
namespace {

// 0.5 (1 + tanh u) = logistic(2 u), u = sqrt(2/pi) (x + 0.044715 x^3): one exponential and no cancellation.
// Beyond |x| = 10 the logistic is 0 or 1 to the last bit that matters, so x is clamped and x^3 cannot overflow.
constexpr float kTwice = 1.59576912f;  // 2 sqrt(2/pi)
constexpr float kCube = 0.044715f;

// V is vf or Lanes.
template <class V>
PTL_INLINE V clamp(V x) {
  return at_least(at_most(x, 10.0f), -10.0f);
}
template <class V>
PTL_INLINE V forward(V x) {
  V c = clamp(x);
  return x * logistic(kTwice * c * (1.0f + kCube * (c * c)));
}
// d gelu / dx = s + x s (1 - s) d(2u)/dx, s = logistic(2u)
template <class V>
PTL_INLINE V slope(V x) {
  V c = clamp(x), cc = c * c;
  V s = logistic(kTwice * c * (1.0f + kCube * cc));
  return s + c * s * (1.0f - s) * (kTwice * (1.0f + 3.0f * kCube * cc));
}

}  // namespace

// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), GPT-2's gelu_new
void gelu(Run& run, int64_t N, const float* x, float* y) {
  parallel_pieces(run, N, 8192, [=](int64_t begin, int64_t end, float*) {
    const float* from = x + begin;
    float* to = y + begin;
    for_lanes(
        end - begin, [=](int64_t i) { store_lanes(to + i, forward(load_lanes(from + i))); },
        [=](int64_t i, int64_t n) { store(to + i, forward(load(from + i, n)), n); });
  });
}
PTL_KERNEL(gelu)

// dx = dy * d gelu / dx
void gelu_backward(Run& run, int64_t N, const float* dy, const float* x, float* dx) {
  parallel_pieces(run, N, 8192, [=](int64_t begin, int64_t end, float*) {
    const float* from = x + begin;
    const float* dfrom = dy + begin;
    float* to = dx + begin;
    for_lanes(
        end - begin, [=](int64_t i) { store_lanes(to + i, load_lanes(dfrom + i) * slope(load_lanes(from + i))); },
        [=](int64_t i, int64_t n) { store(to + i, load(dfrom + i, n) * slope(load(from + i, n)), n); });
  });
}
PTL_KERNEL(gelu_backward)

}  // namespace PTL_ISA
}  // namespace ptl
