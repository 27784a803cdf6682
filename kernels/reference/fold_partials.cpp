// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include "kernels/fold_checks.hpp"
#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

namespace {

/// Adds up in the type Sum, because all devices share its roundings.
template <typename Sum>
void fold(ConstTensor partials, int64_t count, ConstTensor bias, ConstTensor residual, Tensor out) {
    for (int64_t row = 0; row < out.rows; ++row) {
        for (int64_t col = 0; col < out.cols; ++col) {
            auto sum = static_cast<Sum>(get(partials, row, col));
            for (int64_t member = 1; member < count; ++member) {
                sum += static_cast<Sum>(get(partials, member * out.rows + row, col));
            }
            if (bias) sum += static_cast<Sum>(get(bias, 0, col));
            if (residual) sum += static_cast<Sum>(get(residual, row, col));
            set(out, row, col, static_cast<double>(sum));
        }
    }
}

}  // namespace

void fold_partials(Context& ctx, ConstTensor partials, int64_t count, ConstTensor bias,
                   ConstTensor residual, Tensor out) {
    check_fold_partials(partials, count, bias, residual, out);
    if (out.dtype == DType::fp64) {
        fold<double>(partials, count, bias, residual, out);
    } else {
        fold<float>(partials, count, bias, residual, out);
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference
