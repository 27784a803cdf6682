// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>
#include <array>

#include "kernels/bf16.hpp"
#include "kernels/check.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

void ordered_sum(Context& ctx, ConstTensor blocks, int64_t count, Tensor out) {
    require(count >= 1, "at least one block");
    require(has_shape(blocks, count * out.rows, out.cols), "blocks of shape (count rows, cols)");
    constexpr int64_t kStrip = 1024;  // sums that stay in the first-level cache
    with_type(blocks.dtype, [&]<typename In>() {
        with_type(out.dtype, [&]<typename Out>() {
            parallel_ranges(ctx, out.rows, blocks.size(), [&](int64_t begin, int64_t end) {
                std::array<float, kStrip> sum;
                for (int64_t row = begin; row < end; ++row) {
                    for (int64_t first = 0; first < out.cols; first += kStrip) {
                        const int64_t width = std::min(kStrip, out.cols - first);
                        const In* in = blocks.as<In>() + row * blocks.stride + first;
                        Out* const to = out.as<Out>() + row * out.stride + first;
#pragma omp simd
                        for (int64_t i = 0; i < width; ++i) sum[i] = to_float(in[i]);
                        for (int64_t block = 1; block < count; ++block) {
                            in += out.rows * blocks.stride;
#pragma omp simd
                            for (int64_t i = 0; i < width; ++i) sum[i] += to_float(in[i]);
                        }
#pragma omp simd
                        for (int64_t i = 0; i < width; ++i) to[i] = from_float<Out>(sum[i]);
                    }
                }
            });
        });
    });
}

}  // namespace vocabpipe::kernels::host
