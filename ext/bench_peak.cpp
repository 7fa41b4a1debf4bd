// The ceiling a matrix product without fused multiply-add can reach here: independent multiply and add chains in registers.
#include <chrono>

#include "gemm.h"

namespace ptl {
namespace PTL_ISA {
namespace {

constexpr int kValues = W == 16 ? 8 : 5, kRows = 2, kSums = kValues * kRows;

// `rounds` times kSums multiplies and kSums adds of W lanes, on the shape of the matrix product's register tile.
__attribute__((noinline)) float chains(int64_t rounds, const float* start) {
  vf sums[kValues][kRows] = {}, values[kValues], row[kRows];
  for (int i = 0; i < kValues; i++) values[i] = splat(start[i]);
  for (int j = 0; j < kRows; j++) row[j] = splat(start[kValues + j]);
  for (int64_t r = 0; r < rounds; r++) {
    for (int i = 0; i < kValues; i++)
      for (int j = 0; j < kRows; j++) sums[i][j] += values[i] * row[j];
    // Values change places, which costs a register's name and no more, or the products would be computed once.
    vf first = values[0];
    for (int i = 0; i + 1 < kValues; i++) values[i] = values[i + 1];
    values[kValues - 1] = first;
  }
  vf total = {};
  for (int i = 0; i < kValues; i++)
    for (int j = 0; j < kRows; j++) total += sums[i][j];
  return total[0];
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double bench_peak(double seconds);
double bench_peak(double seconds) {
  const int64_t rounds = 100000;
  const double flop = 2.0 * kSums * W * double(rounds);
  double best = 0, end = now() + seconds;
  volatile float sink = 0;
  float numbers[kValues + kRows];
  for (int i = 0; i < kValues + kRows; i++) numbers[i] = 1.0f + 0.125f * float(i);
  do {
    double start = now();
    sink = sink + chains(rounds, numbers);
    double spent = now() - start;
    if (spent > 0 && flop / spent > best) best = flop / spent;
  } while (now() < end);
  return best * 1e-9;
}

}  // namespace PTL_ISA
}  // namespace ptl
