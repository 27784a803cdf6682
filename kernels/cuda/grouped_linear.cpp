// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/check.hpp"
#include "kernels/cuda/engine_state.hpp"
#include "kernels/cuda/gemm.hpp"
#include "kernels/cuda/grouped_launch.hpp"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/side_by_side.hpp"
#include "kernels/expert_checks.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

/// Context::poll() may wait for the device; there must be fewer than 500 launches between two
/// calls.
constexpr size_t kExpertsPerPoll = 128;
/// Row counts change from step to step, and each multiple of 128 adds plans.
constexpr size_t kMostPlans = 4096;

/// Calls body(expert, first row, rows) for each expert, to run one product of cuBLASLt. An expert's
/// rows fill a part of the GPU, so some experts compute at once. Pieces have an empty range for
/// every other expert, so that as many run at once, which decides bits.
template <typename Body>
void for_experts(Context& ctx, std::span<const RowRange> rows, const Body& body) {
    auto& products = ctx.cuda().state().products;
    if (products.size() > kMostPlans) products.clear();
    const int streams = static_cast<int>(std::min<size_t>(rows.size(), SideBySide::kStreams));
    for (size_t begin = 0; begin < rows.size(); begin += kExpertsPerPoll) {
        if (begin > 0) ctx.poll();
        SideBySide side_by_side(ctx, streams);
        for (size_t expert = begin; expert < std::min(begin + kExpertsPerPoll, rows.size());
             ++expert) {
            side_by_side.next();
            body(static_cast<int64_t>(expert), rows[expert].first, rows[expert].size());
        }
    }
}

}  // namespace

void grouped_linear_forward(Context& ctx, ConstTensor x, ConstTensor w,
                            std::span<const RowRange> rows, int64_t first_column, Tensor y) {
    const int64_t out = require_grouped_columns(x, w, y, rows, first_column);
    if (try_grouped_forward(ctx, x, w, rows, out, first_column, y)) return;
    for_experts(ctx, rows, [&](int64_t expert, int64_t first, int64_t count) {
        gemm(ctx, x.row_range(first, count), false,
             w.row_range(expert * out + first_column, y.cols), true, y.row_range(first, count),
             false);
    });
}

void grouped_linear_backward_input(Context& ctx, ConstTensor dy, ConstTensor w,
                                   std::span<const RowRange> rows, Tensor dx) {
    require_grouped_linear(dx, w, dy, rows);
    if (try_grouped_input(ctx, dy, w, rows, dx)) return;
    for_experts(ctx, rows, [&](int64_t expert, int64_t first, int64_t count) {
        gemm(ctx, dy.row_range(first, count), false, w.row_range(expert * dy.cols, dy.cols), false,
             dx.row_range(first, count), false);
    });
}

void grouped_linear_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x,
                                    std::span<const RowRange> rows, Tensor dw, bool accumulate) {
    require_grouped_linear(x, dw, dy, rows);
    require(dw.dtype == DType::fp32, "fp32 dw");
    if (try_grouped_weight(ctx, dy, x, rows, dw, accumulate)) return;
    for_experts(ctx, rows, [&](int64_t expert, int64_t first, int64_t count) {
        gemm(ctx, dy.row_range(first, count), true, x.row_range(first, count), false,
             dw.row_range(expert * dy.cols, dy.cols), accumulate);
    });
}

}  // namespace vocabpipe::kernels::cuda
