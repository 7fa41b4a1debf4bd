#include "../moments.h"

namespace ptl {
namespace PTL_ISA {
namespace {

typedef uint16_t vh __attribute__((vector_size(2 * PTL_W)));

PTL_INLINE vf load_halves(const char* p, int64_t n) {
  vh halves = {};
  if (n >= W)
    memcpy(&halves, p, 2 * W);
  else
    memcpy(&halves, p, size_t(2 * n));
  return (vf)(__builtin_convertvector(halves, vu) << 16);
}

// The upper halves of x, or those of the next larger magnitude: with a chance of what the lower halves say.
PTL_INLINE void store_halves(char* p, vf x, vu chance, int64_t n) {
  vh halves = __builtin_convertvector(((vu)x + chance) >> 16, vh);
  memcpy(p, &halves, size_t(2 * (n >= W ? int64_t(W) : n)));
}

} // namespace

// adamw with moments as bfloat16, two in a word, rounded by chance (see ops/adamw_bf16.py). The half past an odd N is zero.
void adamw_bf16(Run& run, int64_t N, int64_t W, int32_t decayed, const float* grad, const float* norm,
                const float* recipe, float* param, int32_t* m, int32_t* v) {
  const Step step = Step::of(norm, recipe, decayed);
  if (!step.goes) return;
  if (N % 2) {
    memset(reinterpret_cast<char*>(m + W) - 2, 0, 2);
    memset(reinterpret_cast<char*>(v + W) - 2, 0, 2);
  }
  parallel_pieces(run, N, 16384, [=](int64_t begin, int64_t end, float*) {
    for_each(end - begin, [&](int64_t i, int64_t n) {
      int64_t at = begin + i;
      char *halves_m = reinterpret_cast<char*>(m) + 2 * at, *halves_v = reinterpret_cast<char*>(v) + 2 * at;
      vf g = load(grad + at, n) * step.scale;
      vf first = step.moved_m(load_halves(halves_m, n), g), second = step.moved_v(load_halves(halves_v, n), g);
      vu chances = step.chances(at);
      store_halves(halves_m, first, chances & 0xffffu, n);
      store_halves(halves_v, second, chances >> 16, n);
      store(param + at, step.moved_param(load(param + at, n), first, second), n);
    });
  });
}
PTL_KERNEL(adamw_bf16)

} // namespace PTL_ISA
} // namespace ptl
