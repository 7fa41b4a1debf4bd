#include "../gemm.h"
#include "../kernel.h"

namespace ptl {
namespace PTL_ISA {

// y = x @ weight + bias
void linear(Run& run, int64_t R, int64_t I, int64_t O, const float* x, const float* weight, const float* bias,
            float* y) {
  gemm(run, {NN, R, O, I, x, I, weight, O, y, O, bias});
}
PTL_KERNEL(linear)

// dx = dy @ weight^T
void linear_backward_input(Run& run, int64_t R, int64_t I, int64_t O, const float* dy, const float* weight, float* dx) {
  gemm(run, {NT, R, I, O, dy, O, weight, O, dx, I});
}
PTL_KERNEL(linear_backward_input)

// dweight += x^T @ dy; dbias += sum over rows of dy
void linear_backward_weight(Run& run, int64_t R, int64_t I, int64_t O, const float* x, const float* dy, float* dweight,
                            float* dbias) {
  gemm(run, {TN, I, O, R, x, I, dy, O, dweight, O, nullptr, true, dbias});
}
PTL_KERNEL(linear_backward_weight)

} // namespace PTL_ISA
} // namespace ptl
