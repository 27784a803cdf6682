// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include "kernels/check.hpp"
#include "kernels/cuda/column_sums.hpp"
#include "kernels/cuda/gemm.hpp"

namespace vocabpipe::kernels::cuda {

void linear_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias, Tensor y) {
    gemm(ctx, x, false, w, true, y, false, bias);
}

void linear_add_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                        ConstTensor residual, Tensor scratch, Tensor y) {
    if (residual.dtype == y.dtype) {
        multiply(ctx,
                 {.a = x, .b = w, .transpose_b = true, .c = y, .addend = residual, .bias = bias});
        return;
    }
    linear_forward(ctx, x, w, bias, scratch);
    add(ctx, residual, scratch, y);
}

/// A product per row, because cuBLASLt chooses its algorithm by the number of rows.
void linear_rows_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                         ConstTensor residual, Tensor scratch, Tensor y) {
    require(x.rows == y.rows, "a row of x for each of y");
    for (int64_t row = 0; row < y.rows; ++row) {
        if (residual) {
            linear_add_forward(ctx, x.row_range(row, 1), w, bias, residual.row_range(row, 1),
                               scratch.row_range(row, 1), y.row_range(row, 1));
        } else {
            linear_forward(ctx, x.row_range(row, 1), w, bias, y.row_range(row, 1));
        }
    }
}

/// In bf16 one product of cuBLASLt, which applies GELU to the unrounded sum; in fp32 our own GELU,
/// as accurate as the host's.
void linear_gelu_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                         Tensor before, Tensor y) {
    require(same_shape(before, y), "equal shapes of before and y");
    if (y.dtype == DType::bf16 && before.dtype == DType::bf16 &&
        try_multiply(ctx, {.a = x,
                           .b = w,
                           .transpose_b = true,
                           .c = y,
                           .bias = bias,
                           .epilogue = Epilogue::gelu,
                           .aux = before})) {
        return;
    }
    linear_forward(ctx, x, w, bias, before);
    activation_forward(ctx, Activation::gelu_tanh, before, y);
}

void linear_backward_input(Context& ctx, ConstTensor dy, ConstTensor w, Tensor dx) {
    gemm(ctx, dy, false, w, false, dx, false);
}

void linear_gelu_backward_input(Context& ctx, ConstTensor dy, ConstTensor w, ConstTensor before,
                                Tensor dx) {
    require(same_shape(before, dx), "before of dx's shape");
    // cuBLASLt only reads `aux` here.
    const Tensor aux(const_cast<void*>(before.data), before.rows, before.cols, before.stride,
                     before.dtype);
    if (dx.dtype == DType::bf16 && before.dtype == DType::bf16 &&
        try_multiply(ctx,
                     {.a = dy, .b = w, .c = dx, .epilogue = Epilogue::gelu_gradient, .aux = aux})) {
        return;
    }
    linear_backward_input(ctx, dy, w, dx);
    activation_backward(ctx, Activation::gelu_tanh, dx, before, dx);
}

void linear_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, Tensor dw, Tensor dbias,
                            bool accumulate) {
    require(dw.dtype == DType::fp32, "fp32 dw");
    if (dbias) sum_columns(ctx, dy, dbias, accumulate);
    gemm(ctx, dy, true, x, false, dw, accumulate);
}

}  // namespace vocabpipe::kernels::cuda
