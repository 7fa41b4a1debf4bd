// The ceiling a matrix product without fused multiply-add can reach here: as many
// multiplies as adds, independent of each other and in registers.
#include <chrono>

#include "gemm.h"

namespace ptl {
namespace PTL_ISA {
namespace {

constexpr int kSums =
    10; // with four factors and a product, what 16 registers hold; enough to hide an addition's latency

// `rounds` times kSums multiplies and kSums adds of W lanes. Four factors have ten products, and changing places each
// round, which costs a register's name and no more, keeps compilers from computing them once.
__attribute__((noinline)) float chains(int64_t rounds, float start) {
  vf sums[kSums], a = splat(start), b = a + 1.0f, c = a + 2.0f, d = a + 3.0f;
  PTL_UNROLL for (int i = 0; i < kSums; i++) sums[i] = splat(start);
  for (int64_t r = 0; r < rounds; r++) {
    sums[0] += a * a, sums[1] += a * b, sums[2] += a * c, sums[3] += a * d, sums[4] += b * b;
    sums[5] += b * c, sums[6] += b * d, sums[7] += c * c, sums[8] += c * d, sums[9] += d * d;
    vf first = a;
    a = b, b = c, c = d, d = first;
  }
  vf total = {};
  for (int i = 0; i < kSums; i++) total += sums[i];
  return total[0];
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The register tile on operands that stay in the first cache: where loads are free it reaches what registers alone do,
// and it does not depend on how a compiler moves the factors above.
double tiles_in_cache(float* scratch) {
  constexpr int64_t m = 4 * kTileM, k = 128;
  float* b = scratch + m * k;
  float* c = b + k * kTileN;
  const int repeats = 2000;
  double start = now();
  for (int i = 0; i < repeats; i++)
    multiply_columns({m, kTileN, k, scratch, kTileM, kTileM * k, b, kTileN, 0, c, kTileN, nullptr, false});
  return 2.0 * repeats * double(m * k * kTileN) / (now() - start);
}

} // namespace

double bench_peak(double seconds, float* scratch);
double bench_peak(double seconds, float* scratch) {
  const int64_t rounds = 400000; // long against the coarse clock of a page
  double best = 0, end = now() + seconds;
  volatile float sink = 0, one = 1.0f;
  // Called through a pointer: Binaryen would inline it, and V8 optimises functions when they are called again.
  float (*volatile run)(int64_t, float) = chains;
  do {
    double start = now();
    sink = sink + run(rounds, one);
    double rates[] = {2.0 * kSums * W * double(rounds) / (now() - start), tiles_in_cache(scratch)};
    for (double rate : rates)
      if (rate > best && rate < 1e13) best = rate; // a coarse clock may show no time at all
  } while (now() < end);
  return best * 1e-9;
}

} // namespace PTL_ISA
} // namespace ptl
