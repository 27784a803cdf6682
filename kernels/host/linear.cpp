// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include "kernels/check.hpp"
#include "kernels/host/gemm.hpp"
#include "kernels/host/row_product.hpp"

namespace vocabpipe::kernels::host {

void linear_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias, Tensor y) {
    gemm(ctx, x, false, w, true, y, false, bias);
}

void linear_add_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                        ConstTensor residual, Tensor scratch, Tensor y) {
    linear_forward(ctx, x, w, bias, scratch);
    add(ctx, residual, scratch, y);
}

void linear_rows_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                         ConstTensor residual, Tensor scratch, Tensor y) {
    require(has_shape(w, y.cols, x.cols) && x.rows == y.rows, "x (n, in), w (out, in), y (n, out)");
    require(x.dtype == w.dtype, "x and w of one type");
    require(!bias || has_shape(bias, 1, y.cols), "bias of shape (1, out)");
    const Tensor product = residual ? scratch : y;
    require(same_shape(product, y), "scratch of y's shape with a residual");
    row_product(ctx, x, w, bias, product);
    if (residual) add(ctx, residual, scratch, y);
}

void linear_gelu_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                         Tensor before, Tensor y) {
    linear_forward(ctx, x, w, bias, before);
    activation_forward(ctx, Activation::gelu_tanh, before, y);
}

void linear_backward_input(Context& ctx, ConstTensor dy, ConstTensor w, Tensor dx) {
    gemm(ctx, dy, false, w, false, dx, false);
}

void linear_gelu_backward_input(Context& ctx, ConstTensor dy, ConstTensor w, ConstTensor before,
                                Tensor dx) {
    linear_backward_input(ctx, dy, w, dx);
    activation_backward(ctx, Activation::gelu_tanh, dx, before, dx);
}

void linear_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, Tensor dw, Tensor dbias,
                            bool accumulate) {
    require(dw.dtype == DType::fp32, "fp32 dw");
    if (dbias) {
        column_sums(ctx, dy, dbias, accumulate);
        ctx.poll();
    }
    gemm(ctx, dy, true, x, false, dw, accumulate);
}

}  // namespace vocabpipe::kernels::host
