// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "kernels/expert_checks.hpp"
#include "kernels/host/gemm_each.hpp"
#include "kernels/host/operators.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// The products of all experts: product(expert, first row, rows).
template <typename Product>
std::vector<Operands> products_of(std::span<const RowRange> rows, const Product& product) {
    std::vector<Operands> products;
    for (size_t expert = 0; expert < rows.size(); ++expert) {
        products.push_back(
            product(static_cast<int64_t>(expert), rows[expert].first, rows[expert].size()));
    }
    return products;
}

}  // namespace

void grouped_linear_forward(Context& ctx, ConstTensor x, ConstTensor w,
                            std::span<const RowRange> rows, int64_t first_column, Tensor y) {
    const int64_t out = require_grouped_columns(x, w, y, rows, first_column);
    require(x.dtype == w.dtype, "w of x's type");
    gemm_each(ctx, products_of(rows, [&](int64_t expert, int64_t first, int64_t count) {
                  return Operands{.a = x.row_range(first, count),
                                  .b = w.row_range(expert * out + first_column, y.cols),
                                  .transpose_b = true,
                                  .c = y.row_range(first, count),
                                  .bias = {}};
              }));
}

void grouped_linear_backward_input(Context& ctx, ConstTensor dy, ConstTensor w,
                                   std::span<const RowRange> rows, Tensor dx) {
    require_grouped_linear(dx, w, dy, rows);
    require(dy.dtype == w.dtype, "w of dy's type");
    gemm_each(ctx, products_of(rows, [&](int64_t expert, int64_t first, int64_t count) {
                  return Operands{.a = dy.row_range(first, count),
                                  .b = w.row_range(expert * dy.cols, dy.cols),
                                  .c = dx.row_range(first, count),
                                  .bias = {}};
              }));
}

void grouped_linear_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x,
                                    std::span<const RowRange> rows, Tensor dw, bool accumulate) {
    require_grouped_linear(x, dw, dy, rows);
    require(dy.dtype == x.dtype && dw.dtype == DType::fp32, "dy of x's type and fp32 dw");
    gemm_each(ctx, products_of(rows, [&](int64_t expert, int64_t first, int64_t count) {
                  return Operands{.a = dy.row_range(first, count),
                                  .transpose_a = true,
                                  .b = x.row_range(first, count),
                                  .c = dw.row_range(expert * dy.cols, dy.cols),
                                  .accumulate = accumulate,
                                  .bias = {}};
              }));
}

}  // namespace vocabpipe::kernels::host
