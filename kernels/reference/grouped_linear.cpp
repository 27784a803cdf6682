// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include "kernels/reference/elements.hpp"
#include "kernels/reference/operators.hpp"

namespace vocabpipe::kernels::reference {

namespace {

/// Calls body(expert, row) for all rows of all experts.
template <typename Body>
void for_rows(std::span<const RowRange> rows, const Body& body) {
    for (size_t expert = 0; expert < rows.size(); ++expert) {
        for (int64_t row = rows[expert].first; row < rows[expert].end; ++row) {
            body(static_cast<int64_t>(expert), row);
        }
    }
}

}  // namespace

void grouped_linear_forward(Context& ctx, ConstTensor x, ConstTensor w,
                            std::span<const RowRange> rows, int64_t first_column, Tensor y) {
    const int64_t out = w.rows / std::ssize(rows);
    for_rows(rows, [&](int64_t expert, int64_t row) {
        for (int64_t o = 0; o < y.cols; ++o) {
            double sum = 0;
            for (int64_t i = 0; i < x.cols; ++i) {
                sum += get(x, row, i) * get(w, expert * out + first_column + o, i);
            }
            set(y, row, o, sum);
        }
    });
    ctx.poll();
}

void grouped_linear_backward_input(Context& ctx, ConstTensor dy, ConstTensor w,
                                   std::span<const RowRange> rows, Tensor dx) {
    for_rows(rows, [&](int64_t expert, int64_t row) {
        for (int64_t i = 0; i < dx.cols; ++i) {
            double sum = 0;
            for (int64_t o = 0; o < dy.cols; ++o) {
                sum += get(dy, row, o) * get(w, expert * dy.cols + o, i);
            }
            set(dx, row, i, sum);
        }
    });
    ctx.poll();
}

void grouped_linear_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x,
                                    std::span<const RowRange> rows, Tensor dw, bool accumulate) {
    for (int64_t at = 0; at < dw.rows; ++at) {
        const auto expert = static_cast<size_t>(at / dy.cols);
        for (int64_t i = 0; i < dw.cols; ++i) {
            double sum = start(dw, at, i, accumulate);
            for (int64_t row = rows[expert].first; row < rows[expert].end; ++row) {
                sum += get(dy, row, at % dy.cols) * get(x, row, i);
            }
            set(dw, at, i, sum);
        }
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference
