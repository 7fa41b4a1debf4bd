#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {

// y = factor * y + given; given itself where factor is 0, whatever y was
void blend(Run& run, int64_t N, const float* factor, const float* given, float* y) {
  parallel_pieces(run, N, 16384, [=](int64_t begin, int64_t end, float*) {
    for_each(end - begin, [&](int64_t i, int64_t n) {
      int64_t at = begin + i;
      vf by = load(factor + at, n), plus = load(given + at, n);
      store(y + at, select(by == vf{}, plus, by * load(y + at, n) + plus), n);
    });
  });
}
PTL_KERNEL(blend)

} // namespace PTL_ISA
} // namespace ptl
