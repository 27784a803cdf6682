// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include "kernels/reference/elements.hpp"
#include "kernels/row_checks.hpp"

namespace vocabpipe::kernels::reference {

namespace {

/// Adds up and divides in the type Sum, because all devices share its roundings.
template <typename Sum>
void mean(ConstTensor x, int64_t count, Tensor y) {
    for (int64_t row = 0; row < y.rows; ++row) {
        for (int64_t col = 0; col < y.cols; ++col) {
            auto sum = static_cast<Sum>(get(x, row * count, col));
            for (int64_t i = 1; i < count; ++i) {
                sum += static_cast<Sum>(get(x, row * count + i, col));
            }
            set(y, row, col, static_cast<double>(sum / static_cast<Sum>(count)));
        }
    }
}

template <typename Quotient>
void spread(ConstTensor dy, int64_t count, Tensor dx) {
    for (int64_t row = 0; row < dx.rows; ++row) {
        for (int64_t col = 0; col < dx.cols; ++col) {
            const auto value = static_cast<Quotient>(get(dy, row / count, col));
            set(dx, row, col, static_cast<double>(value / static_cast<Quotient>(count)));
        }
    }
}

}  // namespace

void mean_rows(Context& ctx, ConstTensor x, int64_t count, Tensor y) {
    require_row_groups(x, count, y);
    if (y.dtype == DType::fp64) {
        mean<double>(x, count, y);
    } else {
        mean<float>(x, count, y);
    }
    ctx.poll();
}

void spread_rows(Context& ctx, ConstTensor dy, int64_t count, Tensor dx) {
    require_row_groups(dx, count, dy);
    if (dx.dtype == DType::fp64) {
        spread<double>(dy, count, dx);
    } else {
        spread<float>(dy, count, dx);
    }
    ctx.poll();
}

void columns_to_rows(Context& ctx, std::span<const float> columns, int64_t tokens, Tensor y) {
    require_columns_to_rows(columns, tokens, y);
    for (int64_t n = 0; n < tokens; ++n) {
        for (int64_t j = 0; j < y.cols; ++j) {
            set(y, n, j, static_cast<double>(columns[static_cast<size_t>(j * tokens + n)]));
        }
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference
