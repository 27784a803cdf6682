// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "kernels/expert_checks.hpp"
#include "kernels/host/gemm_each.hpp"
#include "kernels/host/operators.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// The products of all experts: product(expert, first row, rows).
template <typename Product>
std::vector<Operands> products_of(std::span<const int32_t> row_begin, const Product& product) {
    std::vector<Operands> products;
    for (size_t expert = 0; expert + 1 < row_begin.size(); ++expert) {
        products.push_back(product(static_cast<int64_t>(expert), row_begin[expert],
                                   row_begin[expert + 1] - row_begin[expert]));
    }
    return products;
}

}  // namespace

void grouped_linear_forward(Context& ctx, ConstTensor x, ConstTensor w,
                            std::span<const int32_t> row_begin, Tensor y) {
    require_grouped_linear(x, w, y, row_begin);
    require(x.dtype == w.dtype, "w of x's type");
    gemm_each(ctx, products_of(row_begin, [&](int64_t expert, int64_t first, int64_t rows) {
                  return Operands{.a = x.row_range(first, rows),
                                  .b = w.row_range(expert * y.cols, y.cols),
                                  .transpose_b = true,
                                  .c = y.row_range(first, rows),
                                  .bias = {}};
              }));
}

void grouped_linear_backward_input(Context& ctx, ConstTensor dy, ConstTensor w,
                                   std::span<const int32_t> row_begin, Tensor dx) {
    require_grouped_linear(dx, w, dy, row_begin);
    require(dy.dtype == w.dtype, "w of dy's type");
    gemm_each(ctx, products_of(row_begin, [&](int64_t expert, int64_t first, int64_t rows) {
                  return Operands{.a = dy.row_range(first, rows),
                                  .b = w.row_range(expert * dy.cols, dy.cols),
                                  .c = dx.row_range(first, rows),
                                  .bias = {}};
              }));
}

void grouped_linear_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x,
                                    std::span<const int32_t> row_begin, Tensor dw,
                                    bool accumulate) {
    require_grouped_linear(x, dw, dy, row_begin);
    require(dy.dtype == x.dtype && dw.dtype == DType::fp32, "dy of x's type and fp32 dw");
    gemm_each(ctx, products_of(row_begin, [&](int64_t expert, int64_t first, int64_t rows) {
                  return Operands{.a = dy.row_range(first, rows),
                                  .transpose_a = true,
                                  .b = x.row_range(first, rows),
                                  .c = dw.row_range(expert * dy.cols, dy.cols),
                                  .accumulate = accumulate,
                                  .bias = {}};
              }));
}

}  // namespace vocabpipe::kernels::host
