#include "../gemm.h"
#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {

// logits = x @ wte^T
void unembed(Run& run, int64_t R, int64_t C, int64_t V, const float* x, const float* wte, float* logits) {
  gemm(run, {NT, R, V, C, x, C, wte, C, logits, V});
}
PTL_KERNEL(unembed)

// dx = dlogits @ wte
void unembed_backward_input(Run& run, int64_t R, int64_t C, int64_t V, const float* dlogits, const float* wte,
                            float* dx) {
  gemm(run, {NN, R, C, V, dlogits, V, wte, C, dx, C});
}
PTL_KERNEL(unembed_backward_input)

// dwte += dlogits^T @ x
void unembed_backward_weight(Run& run, int64_t R, int64_t C, int64_t V, const float* x, const float* dlogits,
                             float* dwte) {
  gemm(run, {TN, V, C, R, dlogits, V, x, C, dwte, C, nullptr, true});
}
PTL_KERNEL(unembed_backward_weight)

} // namespace PTL_ISA
} // namespace ptl
