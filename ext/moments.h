// What the kernels of AdamW with smaller moments share: the step in float, and the chance by which a moment is rounded up.
#pragma once
#include "kernel.h"

namespace ptl {
namespace PTL_ISA {

typedef uint32_t vu __attribute__((vector_size(4 * PTL_W)));

// 32 bits out of 32, each depending on all (Chris Wellons, "lowbias32"). T is uint32_t or vu.
template <class T> PTL_INLINE T hashed(T x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

// The recipe of a step as adamw.cpp reads it, and its arithmetic on vectors.
struct Step {
  float lr, beta1, beta2, rest1, rest2, eps, correction1, correction2, keep_param, scale;
  uint32_t key;
  bool goes; // a norm that is not finite changes nothing

  static Step of(const float* norm, const float* recipe, int32_t decayed) {
    Step s;
    s.lr = recipe[0], s.beta1 = recipe[1], s.beta2 = recipe[2], s.eps = recipe[3];
    s.rest1 = 1.0f - s.beta1, s.rest2 = 1.0f - s.beta2;
    s.correction1 = recipe[6], s.correction2 = recipe[7];
    s.keep_param = decayed ? 1.0f - s.lr * recipe[4] : 1.0f;
    const float clip = recipe[5];
    s.scale = clip > 0.0f && norm[0] > clip ? clip / norm[0] : 1.0f;
    uint32_t bits;
    memcpy(&bits, norm, 4);
    s.key = hashed(bits);
    s.goes = norm[0] - norm[0] == 0.0f;
    return s;
  }
  // Element i's to i + W - 1's: the low 16 bits are m's, the high ones v's.
  vu chances(int64_t i) const {
    vu lanes;
    for (int j = 0; j < W; j++) lanes[j] = uint32_t(j);
    return hashed(lanes + (uint32_t(i) + key));
  }
  vf moved_m(vf m, vf g) const { return m * beta1 + g * rest1; }
  vf moved_v(vf v, vf g) const { return v * beta2 + g * g * rest2; }
  vf moved_param(vf param, vf m, vf v) const {
    return param * keep_param - lr * (m * correction1) / (square_root(v * correction2) + eps);
  }
};

} // namespace PTL_ISA
} // namespace ptl
