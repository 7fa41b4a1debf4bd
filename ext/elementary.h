// exp, log and the logistic function from multiplications, additions and divisions only, so that every build rounds the
// same way. Coefficients: least-squares fits reweighted to equal ripple, done for this file on the intervals named.
#pragma once
#include "simd.h"

namespace ptl {
namespace PTL_ISA {

// e^x, relative error < 2e-7 for -87 <= x <= 88; 0 below (no denormals), e^88 above; NaN for NaN.
PTL_INLINE vf exp(vf x) {
  const vf magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to the nearest integer, kept in the low bits
  vf clamped = at_least(at_most(x, splat(88.0f)), splat(-87.0f));
  vf shifted = clamped * 1.44269504f + magic;
  vf n = shifted - magic;
  vf r = (clamped - n * 0.693359375f) - n * -2.12194442e-4f;  // ln 2 in two parts, the first exact in 10 bits
  // e^r = 1 + r + r^2 q(r), |r| <= ln(2)/2, ripple 3e-9
  vf q = 0.0013814465f * r + 0.008368781f;
  q = q * r + 0.041668393f;
  q = q * r + 0.1666652f;
  q = q * r + 0.49999994f;
  vf power = (q * (r * r) + r) + 1.0f;
  vi scale = ((vi)shifted << 23) + splat_int(0x3f800000);  // the bits of 2^n
  vf value = power * (vf)scale;
  return select(x < splat(-87.0f), vf{}, value);
}

// 1 / (1 + e^-x) for -87 <= x <= 87.
PTL_INLINE vf logistic(vf x) { return 1.0f / (1.0f + exp(-x)); }

// Natural logarithm of a normal positive float, relative error < 2e-7 away from 1; other values come back as they are.
PTL_INLINE float log(float x) {
  if (!(x >= 1.17549435e-38f && x <= 3.4e38f)) return x;
  int32_t bits;
  memcpy(&bits, &x, 4);
  int32_t exponent = (bits - 0x3f3504f3) >> 23;  // so that the mantissa below lies in [sqrt(1/2), sqrt(2))
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

}  // namespace PTL_ISA
}  // namespace ptl
