#include "../elementary.h"
#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {
namespace {

// 0.5 (1 + tanh u) = 1 / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3): one exponential and no cancellation.
// Beyond |x| = 9.9 that is 0 or 1 to the last bit that matters, so x is clamped: then |2u| < 85 needs no care in e^x,
// and x^3 cannot overflow.
constexpr float kMinusTwice = -1.59576912f; // -2 sqrt(2/pi)
constexpr float kCube = 0.044715f, kMinusTwiceCube = kMinusTwice * kCube;
constexpr float kSlope = -kMinusTwice, kSlopeSquare = 3.0f * kSlope * kCube;
constexpr float kMost = 9.9f, kLeast = -9.9f;

// V is vf or Lanes.
template <class V> PTL_INLINE V clamp(V x) { return at_least(at_most(x, loaded(kMost)), loaded(kLeast)); }
// 1 + e^-2u
template <class V> PTL_INLINE V one_and_exp(V c, V cc) {
  return loaded(kOne) + exp_in_range(c * (loaded(kMinusTwice) + loaded(kMinusTwiceCube) * cc));
}
template <class V> PTL_INLINE V forward(V x) {
  V c = clamp(x);
  return x / one_and_exp(c, c * c);
}
// d gelu / dx = s + x s (1 - s) d(2u)/dx, s = 1 / (1 + e^-2u)
template <class V> PTL_INLINE V slope(V x) {
  V c = clamp(x), cc = c * c;
  V s = loaded(kOne) / one_and_exp(c, cc);
  return s + (c * (loaded(kSlope) + loaded(kSlopeSquare) * cc)) * (s * (loaded(kOne) - s));
}

} // namespace

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

} // namespace PTL_ISA
} // namespace ptl
