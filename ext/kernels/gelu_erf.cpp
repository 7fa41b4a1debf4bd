#include "../elementary.h"
#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {
namespace {

// The tail of the normal distribution, Q(t) = 1 - Phi(t) = e^(-t^2/2) R(t) for t >= 0. R falls from 1/2 like 1/t, so it is
// u P(w), u = 1 / (1 + 0.3 t), w = 2u - 1, with a polynomial P of degree 9: least squares reweighted to equal ripple 3.4e-9
// for t <= 12.8, done for this file. In float32 R is right to 3.2 eps, and R(0) is 1/2 exactly. The exponent is rounded to
// half an eps of itself, so Q is right to (4 + t^2/2) eps.
constexpr float kSlow = 0.3f, kMinusHalf = -0.5f, kMinusOne = -1.0f, kTwo = 2.0f;
constexpr float kTail0 = 0.22197062f, kTail1 = 0.16457948f, kTail2 = 0.08654971f, kTail3 = 0.027760353f,
                kTail4 = 0.0018160199f, kTail5 = -0.0024235952f, kTail6 = -0.00056955364f, kTail7 = 0.00028074667f,
                kTail8 = 7.635826e-05f, kTail9 = -4.0138173e-05f;
constexpr float kDensity = 0.398942280f; // 1 / sqrt(2 pi)
// Beyond 12.8 the tail is below 1e-37 and x Q(x) nothing beside x; the exponent stays where e^x needs no care.
constexpr float kMost = 12.8f, kLeast = -12.8f;

PTL_INLINE vf magnitude(vf x) { return larger(x, -x); }
PTL_INLINE vf beside(vf x, vf tail) { return select(x < splat(0.0f), tail, splat(loaded(kOne)) - tail); }
template <int N> PTL_INLINE Vectors<N> magnitude(Vectors<N> x) {
  PTL_UNROLL for (int j = 0; j < N; j++) x.v[j] = magnitude(x.v[j]);
  return x;
}
// Phi(x) from the tail beyond |x|.
template <int N> PTL_INLINE Vectors<N> beside(Vectors<N> x, Vectors<N> tail) {
  PTL_UNROLL for (int j = 0; j < N; j++) tail.v[j] = beside(x.v[j], tail.v[j]);
  return tail;
}

// V is vf or Lanes.
template <class V> PTL_INLINE V clamp(V x) { return at_least(at_most(x, loaded(kMost)), loaded(kLeast)); }
template <class V> PTL_INLINE V bell(V t) { return exp_in_range((t * loaded(kMinusHalf)) * t); }
template <class V> PTL_INLINE V tail(V t, V bell_of_t) {
  V u = loaded(kOne) / (loaded(kOne) + loaded(kSlow) * t);
  V w = loaded(kTwo) * u + loaded(kMinusOne);
  V ww = w * w, w4 = ww * ww;
  V low = (loaded(kTail0) + loaded(kTail1) * w) + (loaded(kTail2) + loaded(kTail3) * w) * ww;
  V middle = (loaded(kTail4) + loaded(kTail5) * w) + (loaded(kTail6) + loaded(kTail7) * w) * ww;
  V high = middle + (loaded(kTail8) + loaded(kTail9) * w) * w4;
  return ((low + high * w4) * u) * bell_of_t;
}
template <class V> PTL_INLINE V forward(V x) {
  V t = magnitude(clamp(x));
  return x * beside(x, tail(t, bell(t)));
}
// d gelu_erf / dx = Phi(x) + x phi(x)
template <class V> PTL_INLINE V slope(V x) {
  V c = clamp(x), t = magnitude(c), b = bell(t);
  return beside(x, tail(t, b)) + (c * loaded(kDensity)) * b;
}

} // namespace

// y = x Phi(x)
void gelu_erf(Run& run, int64_t N, const float* x, float* y) {
  parallel_pieces(run, N, 8192, [=](int64_t begin, int64_t end, float*) {
    const float* from = x + begin;
    float* to = y + begin;
    for_lanes(
        end - begin, [=](int64_t i) { store_lanes(to + i, forward(load_lanes(from + i))); },
        [=](int64_t i, int64_t n) { store(to + i, forward(load(from + i, n)), n); });
  });
}
PTL_KERNEL(gelu_erf)

// dx = dy * d gelu_erf / dx
void gelu_erf_backward(Run& run, int64_t N, const float* dy, const float* x, float* dx) {
  parallel_pieces(run, N, 8192, [=](int64_t begin, int64_t end, float*) {
    const float* from = x + begin;
    const float* dfrom = dy + begin;
    float* to = dx + begin;
    for_lanes(
        end - begin, [=](int64_t i) { store_lanes(to + i, load_lanes(dfrom + i) * slope(load_lanes(from + i))); },
        [=](int64_t i, int64_t n) { store(to + i, load(dfrom + i, n) * slope(load(from + i, n)), n); });
  });
}
PTL_KERNEL(gelu_erf_backward)

} // namespace PTL_ISA
} // namespace ptl
