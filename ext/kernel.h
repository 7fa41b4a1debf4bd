// Unpacks a record into a kernel's parameter list (the form is described in engine.h).
#pragma once
#include <stdint.h>
#include <string.h>

#include <utility>

#include "run.h"
#include "simd.h"

namespace ptl {

struct Operands {
  const int64_t* record;  // its 32 words
  char* const* addresses; // its operands, resolved and checked
};

namespace PTL_ISA {

// Words before position `at` of a parameter list, by kind: letters, parameters, operands.
template <class... A> struct Kinds {
  static constexpr bool letter[] = {__is_same(A, int64_t)..., false};
  static constexpr bool pointer[] = {
      __is_same(A, const float*) || __is_same(A, float*) || __is_same(A, const int32_t*) || __is_same(A, int32_t*)...,
      false};
  static constexpr int before(int at, int kind) {
    int n = 0;
    for (int i = 0; i < at; i++) n += (letter[i] ? 0 : pointer[i] ? 2 : 1) == kind;
    return n;
  }
};

template <class T> struct Fetch { // an operand
  template <class K, int at> static T get(const Operands& o) {
    return reinterpret_cast<T>(o.addresses[K::before(at, 2)]);
  }
};
template <> struct Fetch<int64_t> {
  template <class K, int at> static int64_t get(const Operands& o) { return o.record[1 + K::before(at, 0)]; }
};
template <> struct Fetch<int32_t> {
  template <class K, int at> static int32_t get(const Operands& o) { return int32_t(o.record[9 + K::before(at, 1)]); }
};
template <> struct Fetch<float> {
  template <class K, int at> static float get(const Operands& o) {
    int32_t bits = int32_t(o.record[9 + K::before(at, 1)]);
    float value;
    memcpy(&value, &bits, 4);
    return value;
  }
};

template <class... A, int... at>
PTL_INLINE void unpack(void (*kernel)(Run&, A...), Run& run, const Operands& o, std::integer_sequence<int, at...>) {
  kernel(run, Fetch<A>::template get<Kinds<A...>, at>(o)...);
}
template <class... A> PTL_INLINE void unpack(void (*kernel)(Run&, A...), Run& run, const Operands& o) {
  unpack(kernel, run, o, std::make_integer_sequence<int, int(sizeof...(A))>());
}

} // namespace PTL_ISA

struct Build {
  const char* name;
  void (*const* kernels)(Run&, const Operands&);
  double (*peak)(double seconds, float* scratch);
  void (*gemm)(Run& run, int layout, int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c);
};

} // namespace ptl

#define PTL_KERNEL(NAME)                                                                                               \
  void entry_##NAME(Run& run, const Operands& operands) { unpack(NAME, run, operands); }
