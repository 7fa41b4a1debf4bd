#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {

constexpr int64_t kPartSize = 16384; // G = ceil(N / kPartSize), which registry.cpp checks

// norm = sqrt(sum of grad^2), through one partial sum for each 16384 elements
void grad_norm(Run& run, int64_t N, int64_t G, const float* grad, float* partials, float* norm) {
  parallel(run, G, [=](int64_t g, float*) {
    const float* part = grad + g * kPartSize;
    int64_t count = N - g * kPartSize < kPartSize ? N - g * kPartSize : kPartSize;
    partials[g] = sum_of(count, [&](int64_t i, int64_t n) {
      vf x = load(part + i, n);
      return x * x;
    });
  });
  float total = sum_of(G, [&](int64_t g, int64_t n) { return load(partials + g, n); });
  norm[0] = square_root(splat(total))[0];
}
PTL_KERNEL(grad_norm)

} // namespace PTL_ISA
} // namespace ptl
