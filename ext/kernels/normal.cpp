#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

// splitmix64's finaliser.
PTL_INLINE uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

PTL_INLINE int32_t sum_of_words(uint64_t z) {
  return int32_t((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48));
}

} // namespace

// x = std * z, z nearly normal: twelve uniform 16-bit words summed and centred (Irwin-Hall), exact in float.
void normal(Run& run, int64_t N, float std, int32_t stream, const int32_t* seed, float* x) {
  uint64_t seed64 = uint64_t(uint32_t(seed[0])) | uint64_t(uint32_t(seed[1])) << 32;
  uint64_t key = mix(seed64 + kGolden * (uint64_t(int64_t(stream)) + 1));
  parallel_pieces(run, N, 8192, [=](int64_t begin, int64_t end, float*) {
    for (int64_t i = begin; i < end; i++) {
      uint64_t word = key + kGolden * (3 * uint64_t(i) + 1);
      int32_t total =
          sum_of_words(mix(word)) + sum_of_words(mix(word + kGolden)) + sum_of_words(mix(word + 2 * kGolden));
      x[i] = std * (float(total - 6 * 65535) * 0x1p-16f);
    }
  });
}
PTL_KERNEL(normal)

} // namespace PTL_ISA
} // namespace ptl
