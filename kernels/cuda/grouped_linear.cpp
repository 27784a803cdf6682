// SPDX-License-Identifier: Apache-2.0
#include "kernels/check.hpp"
#include "kernels/cuda/engine_state.hpp"
#include "kernels/cuda/gemm.hpp"
#include "kernels/cuda/operators.hpp"
#include "kernels/expert_checks.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

/// Context::poll() may wait for the device; between two calls there are to be fewer than 500
/// launches.
constexpr size_t kExpertsPerPoll = 128;
/// Row counts change from step to step, and each makes a plan of its own.
constexpr size_t kMostPlans = 4096;

/// Calls body(expert, first row, rows) for one product of cuBLASLt each.
template <typename Body>
void for_experts(Context& ctx, std::span<const int32_t> row_begin, const Body& body) {
    auto& products = ctx.cuda().state().products;
    if (products.size() > kMostPlans) products.clear();
    for (size_t expert = 0; expert + 1 < row_begin.size(); ++expert) {
        if (expert > 0 && expert % kExpertsPerPoll == 0) ctx.poll();
        body(static_cast<int64_t>(expert), row_begin[expert],
             row_begin[expert + 1] - row_begin[expert]);
    }
}

}  // namespace

void grouped_linear_forward(Context& ctx, ConstTensor x, ConstTensor w,
                            std::span<const int32_t> row_begin, Tensor y) {
    require_grouped_linear(x, w, y, row_begin);
    for_experts(ctx, row_begin, [&](int64_t expert, int64_t first, int64_t rows) {
        gemm(ctx, x.row_range(first, rows), false, w.row_range(expert * y.cols, y.cols), true,
             y.row_range(first, rows), false);
    });
}

void grouped_linear_backward_input(Context& ctx, ConstTensor dy, ConstTensor w,
                                   std::span<const int32_t> row_begin, Tensor dx) {
    require_grouped_linear(dx, w, dy, row_begin);
    for_experts(ctx, row_begin, [&](int64_t expert, int64_t first, int64_t rows) {
        gemm(ctx, dy.row_range(first, rows), false, w.row_range(expert * dy.cols, dy.cols), false,
             dx.row_range(first, rows), false);
    });
}

void grouped_linear_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x,
                                    std::span<const int32_t> row_begin, Tensor dw,
                                    bool accumulate) {
    require_grouped_linear(x, dw, dy, row_begin);
    require(dw.dtype == DType::fp32, "fp32 dw");
    for_experts(ctx, row_begin, [&](int64_t expert, int64_t first, int64_t rows) {
        gemm(ctx, dy.row_range(first, rows), true, x.row_range(first, rows), false,
             dw.row_range(expert * dy.cols, dy.cols), accumulate);
    });
}

}  // namespace vocabpipe::kernels::cuda
