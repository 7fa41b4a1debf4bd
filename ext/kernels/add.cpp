#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {

// y = a + b
void add(Run& run, int64_t N, const float* a, const float* b, float* y) {
  parallel_pieces(run, N, 16384, [=](int64_t begin, int64_t end, float*) {
    for_each(end - begin, [&](int64_t i, int64_t n) {
      int64_t at = begin + i;
      store(y + at, load(a + at, n) + load(b + at, n), n);
    });
  });
}
PTL_KERNEL(add)

} // namespace PTL_ISA
} // namespace ptl
