// exp and log from multiplications, additions and divisions only, so that every build rounds the
// same way. Coefficients: least-squares fits reweighted to equal ripple, done for this file on the intervals named.
#pragma once
#include "simd.h"

namespace ptl {
namespace PTL_ISA {

constexpr float kOne = 1.0f;
constexpr float kExpLow = -87.0f, kExpHigh = 88.0f; // between them e^x and the factors below are normal floats
constexpr float kLog2E = 1.44269504f;
constexpr float kRound = 12582912.0f; // 1.5 * 2^23: adding it rounds to the nearest integer, kept in the low bits
constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194442e-4f; // ln 2 in two parts, the first exact in 10 bits
// e^r = 1 + r + r^2 q(r), |r| <= ln(2)/2, ripple 3e-9
constexpr float kExp0 = 0.49999994f, kExp1 = 0.1666652f, kExp2 = 0.041668393f, kExp3 = 0.008368781f,
                kExp4 = 0.0013814465f;

// 2^n from n + kRound.
PTL_INLINE vf power_of_two(vf shifted) { return (vf)(((vi)shifted << 23) + (vi)splat(loaded(kOne))); }
// 0 where x < limit.
PTL_INLINE vf zero_below(vf x, float limit, vf value) { return (vf)(~(x < splat(limit)) & (vi)value); }
template <int N> PTL_INLINE Vectors<N> power_of_two(Vectors<N> shifted) {
  PTL_UNROLL for (int j = 0; j < N; j++) shifted.v[j] = power_of_two(shifted.v[j]);
  return shifted;
}
template <int N> PTL_INLINE Vectors<N> zero_below(Vectors<N> x, float limit, Vectors<N> value) {
  PTL_UNROLL for (int j = 0; j < N; j++) value.v[j] = zero_below(x.v[j], limit, value.v[j]);
  return value;
}

// e^x for -87 <= x <= 88, relative error < 2e-7; NaN for NaN. V is vf or Vectors.
// Short chains matter here more than few operations: processors run out of room for waiting instructions first.
template <class V> PTL_INLINE V exp_in_range(V x) {
  const float round = loaded(kRound);
  V shifted = x * loaded(kLog2E) + round;
  V n = shifted - round;
  V r = (x - n * loaded(kLn2High)) - n * loaded(kLn2Low);
  V rr = r * r;
  V high = (loaded(kExp2) + loaded(kExp3) * r) + loaded(kExp4) * rr;
  V q = (loaded(kExp0) + loaded(kExp1) * r) + high * rr;
  return ((loaded(kOne) + r) + q * rr) * power_of_two(shifted);
}

// e^x for x <= 88: 0 below -87 (no denormals).
template <class V> PTL_INLINE V exp_below_88(V x) {
  const float low = loaded(kExpLow);
  return zero_below(x, low, exp_in_range(at_least(x, low)));
}

// The same for every x; e^88 above 88.
template <class V> PTL_INLINE V exp(V x) { return exp_below_88(at_most(x, loaded(kExpHigh))); }

// Natural logarithm of a normal positive float, relative error < 2e-7 away from 1; other values come back as they are.
PTL_INLINE float log(float x) {
  if (!(x >= 1.17549435e-38f && x <= 3.4e38f)) return x;
  int32_t bits;
  memcpy(&bits, &x, 4);
  int32_t exponent = (bits - 0x3f3504f3) >> 23; // so that the mantissa below lies in [sqrt(1/2), sqrt(2))
  bits -= exponent << 23;
  float m;
  memcpy(&m, &bits, 4);
  // log m = 2 s + s^3 g(s^2), s = (m - 1) / (m + 1), ripple 2e-9
  float s = (m - 1.0f) / (m + 1.0f);
  float z = s * s;
  float g = (0.29874426f * z + 0.3997745f) * z + 0.66666776f;
  float n = float(exponent);
  return (n * -2.12194442e-4f + s * z * g) + (2.0f * s + n * 0.693359375f);
}

} // namespace PTL_ISA
} // namespace ptl
