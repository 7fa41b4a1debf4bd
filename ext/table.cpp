// This build's kernels, by id.
#include "gemm.h"
#include "kernel.h"
#include "kernel_list.h"

namespace ptl {
namespace PTL_ISA {

#define PTL_DECLARE(NAME, LETTERS, PARAMETERS, OPERANDS) void entry_##NAME(Run& run, const Operands& operands);
PTL_KERNELS(PTL_DECLARE)
#undef PTL_DECLARE

double bench_peak(double seconds, float* scratch);

namespace {

#define PTL_ENTRY(NAME, LETTERS, PARAMETERS, OPERANDS) entry_##NAME,
void (*const entries[])(Run&, const Operands&) = {PTL_KERNELS(PTL_ENTRY)};
#undef PTL_ENTRY

void bench_gemm(Run& run, int layout, int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c) {
  gemm(run, {Layout(layout), m, n, k, a, layout == TN ? m : k, b, layout == NT ? k : n, c, n, nullptr, layout == TN});
}

} // namespace

extern const Build build;
const Build build = {PTL_ISA_NAME, entries, bench_peak, bench_gemm};

} // namespace PTL_ISA
} // namespace ptl
