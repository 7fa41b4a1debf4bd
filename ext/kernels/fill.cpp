#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {

// x = value
void fill(Run& run, int64_t N, float value, float* x) {
  parallel_pieces(run, N, 65536, [=](int64_t begin, int64_t end, float*) {
    for_each(end - begin, [&](int64_t i, int64_t n) { store(x + begin + i, splat(value), n); });
  });
}
PTL_KERNEL(fill)

} // namespace PTL_ISA
} // namespace ptl
