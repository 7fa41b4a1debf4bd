// Vectors of float on compiler vector extensions: W lanes, a compile-time constant of the build. Every file of kernels
// is compiled once per build into its own namespace, so builds live side by side in one module.
//
// Same bits in every build: elementwise code does the same IEEE operations whatever W is (no contraction, no
// fast-math), and sums over a row go through 16 lanes (element i to lane i % 16) and then a fixed tree.
#pragma once
#include <stdint.h>
#include <string.h>

#if defined(__wasm_simd128__)
#define PTL_ISA wasm
#define PTL_ISA_NAME "wasm simd128"
#define PTL_W 4
#include <wasm_simd128.h>
#elif defined(__AVX512F__)
#define PTL_ISA avx512
#define PTL_ISA_NAME "avx512"
#define PTL_W 16
#include <immintrin.h>
#elif defined(__AVX2__)
#define PTL_ISA avx2
#define PTL_ISA_NAME "avx2"
#define PTL_W 8
#include <immintrin.h>
#elif defined(__SSE2__)
#define PTL_ISA sse2
#define PTL_ISA_NAME "sse2"
#define PTL_W 4
#include <emmintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__)
#define PTL_ISA neon
#define PTL_ISA_NAME "neon"
#define PTL_W 4
#include <arm_neon.h>
#else
#error "the engine needs SSE2, NEON (arm64) or WebAssembly simd128"
#endif

#define PTL_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define PTL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define PTL_UNROLL _Pragma("GCC unroll 16")
#endif

namespace ptl {
namespace PTL_ISA {

constexpr int W = PTL_W;
constexpr int kLanes = 16;

typedef float vf __attribute__((vector_size(4 * PTL_W)));
typedef int32_t vi __attribute__((vector_size(4 * PTL_W)));
typedef float vf_unaligned __attribute__((vector_size(4 * PTL_W), aligned(4), may_alias));

PTL_INLINE vf load(const float* p) { return *(const vf_unaligned*)p; }
PTL_INLINE void store(float* p, vf x) { *(vf_unaligned*)p = x; }
PTL_INLINE vf splat(float x) { return x - vf{}; } // x - 0 keeps -0 and every other value
PTL_INLINE vi splat_int(int32_t x) { return x - vi{}; }

// A constant of namespace scope, for arithmetic with vectors. V8 builds a vector constant from integer moves and
// shuffles at every use, three instructions; loading it is one, if the compiler does not see through the load.
PTL_INLINE float loaded(const float& constant) {
  const float* at = &constant;
#if defined(__wasm__)
  __asm__("" : "+r"(at));
#endif
  return *at;
}

// n of W lanes, the rest zero; n is W in main loops, where this is one plain load or store.
PTL_INLINE vf load(const float* p, int64_t n) {
  if (n >= W) return load(p);
  float lanes[W] = {};
  for (int64_t i = 0; i < n; i++) lanes[i] = p[i];
  return load(lanes);
}
PTL_INLINE void store(float* p, vf x, int64_t n) {
  if (n >= W) return store(p, x);
  float lanes[W];
  store(lanes, x);
  for (int64_t i = 0; i < n; i++) p[i] = lanes[i];
}

PTL_INLINE vf select(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }
// A NaN in x comes through both.
PTL_INLINE vf at_most(vf x, float limit) {
  vf high = splat(limit);
  return high < x ? high : x;
}
PTL_INLINE vf at_least(vf x, float limit) {
  vf low = splat(limit);
  return low > x ? low : x;
}
PTL_INLINE vf larger(vf a, vf b) { return a > b ? a : b; }

PTL_INLINE vf square_root(vf x) {
#if defined(__wasm_simd128__)
  return (vf)wasm_f32x4_sqrt((v128_t)x);
#elif PTL_W == 16
  // GCC 12 warns of an uninitialised value inside the plain intrinsic.
  return (vf)_mm512_maskz_sqrt_ps(__mmask16(-1), (__m512)x);
#elif PTL_W == 8
  return (vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
  return (vf)_mm_sqrt_ps((__m128)x);
#else
  return (vf)vsqrtq_f32((float32x4_t)x);
#endif
}

// Lanes at and after n become zero.
PTL_INLINE vf keep(vf x, int64_t n) {
  if (n >= W) return x;
  float lanes[W] = {};
  store(lanes, x, n);
  return load(lanes);
}

// N vectors that go through the same arithmetic step by step: a constant is fetched once for all of them, and their
// dependent operations overlap.
template <int N> struct Vectors {
  vf v[N];
};
// clang-format off: it takes the unrolling pragma for part of the loop's body
#define PTL_OPERATOR(op)                                            \
  template <int N>                                                  \
  PTL_INLINE Vectors<N> operator op(Vectors<N> a, Vectors<N> b) {   \
    PTL_UNROLL for (int j = 0; j < N; j++) a.v[j] = a.v[j] op b.v[j]; \
    return a;                                                       \
  }                                                                 \
  template <int N>                                                  \
  PTL_INLINE Vectors<N> operator op(Vectors<N> a, float b) {        \
    PTL_UNROLL for (int j = 0; j < N; j++) a.v[j] = a.v[j] op b;    \
    return a;                                                       \
  }                                                                 \
  template <int N>                                                  \
  PTL_INLINE Vectors<N> operator op(float a, Vectors<N> b) {        \
    PTL_UNROLL for (int j = 0; j < N; j++) b.v[j] = a op b.v[j];    \
    return b;                                                       \
  }
PTL_OPERATOR(+)
PTL_OPERATOR(-)
PTL_OPERATOR(*)
PTL_OPERATOR(/)
#undef PTL_OPERATOR
// clang-format on
template <int N> PTL_INLINE Vectors<N> at_most(Vectors<N> x, float limit) {
  PTL_UNROLL for (int j = 0; j < N; j++) x.v[j] = at_most(x.v[j], limit);
  return x;
}
template <int N> PTL_INLINE Vectors<N> at_least(Vectors<N> x, float limit) {
  PTL_UNROLL for (int j = 0; j < N; j++) x.v[j] = at_least(x.v[j], limit);
  return x;
}

// 16 elements: the lanes of every sum over a row.
typedef Vectors<kLanes / W> Lanes;

PTL_INLINE Lanes load_lanes(const float* p) {
  Lanes x;
  PTL_UNROLL for (int q = 0; q < kLanes / W; q++) x.v[q] = load(p + q * W);
  return x;
}
PTL_INLINE void store_lanes(float* p, Lanes x) {
  PTL_UNROLL for (int q = 0; q < kLanes / W; q++) store(p + q * W, x.v[q]);
}

typedef float v4 __attribute__((vector_size(16)));
union Quarters {
  Lanes lanes;
  v4 quarter[4];
};

PTL_INLINE float sum(Lanes lanes) {
  Quarters all = {lanes};
  v4 four = (all.quarter[0] + all.quarter[2]) + (all.quarter[1] + all.quarter[3]);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// The largest; NaNs are passed over.
PTL_INLINE float largest(Lanes lanes) {
  Quarters all = {lanes};
  v4 a = all.quarter[0] > all.quarter[2] ? all.quarter[0] : all.quarter[2];
  v4 b = all.quarter[1] > all.quarter[3] ? all.quarter[1] : all.quarter[3];
  v4 four = a > b ? a : b;
  float x = four[0] > four[2] ? four[0] : four[2], y = four[1] > four[3] ? four[1] : four[3];
  return x > y ? x : y;
}

// Sum over i < n of term(i, count), where term returns elements i..i+W-1, of which the first count count.
template <class Term> PTL_INLINE float sum_of(int64_t n, Term term) {
  Lanes lanes = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int q = 0; q < kLanes / W; q++) lanes.v[q] += term(i + q * W, int64_t(W));
  for (int q = 0; q < kLanes / W; q++) {
    int64_t left = n - i - q * W;
    if (left > 0) lanes.v[q] += keep(term(i + q * W, left), left);
  }
  return sum(lanes);
}

// body(i, count) for i = 0, W, 2W, ... < n.
template <class Body> PTL_INLINE void for_each(int64_t n, Body body) {
  int64_t i = 0;
  for (; i + W <= n; i += W) body(i, int64_t(W));
  if (i < n) body(i, n - i);
}

// The same in steps of 16 while they last: wide(i) for 16 elements, then body(i, count).
template <class Wide, class Body> PTL_INLINE void for_lanes(int64_t n, Wide wide, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) wide(i);
  for (; i + W <= n; i += W) body(i, int64_t(W));
  if (i < n) body(i, n - i);
}

} // namespace PTL_ISA
} // namespace ptl
