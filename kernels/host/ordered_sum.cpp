// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/bf16.hpp"
#include "kernels/check.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

void ordered_sum(Context& ctx, ConstTensor blocks, int64_t count, int64_t own, Tensor out) {
    require(count >= 1, "at least one block");
    require(has_shape(blocks, count * out.rows, out.cols), "blocks of shape (count rows, cols)");
    require(own < count && (own < 0 || blocks.dtype == out.dtype), "an own block of one type");
    if (blocks.stride == blocks.cols && out.stride == out.cols) {
        // One run instead of many short ones.
        blocks = {blocks.data, count, out.size(), blocks.dtype};
        out = {out.data, 1, out.size(), out.dtype};
    }
    constexpr int64_t kStrip = 1024;  // sums that stay in the first-level cache
    const int64_t strips = (out.cols + kStrip - 1) / kStrip;
    with_type(blocks.dtype, [&]<typename In>() {
        with_type(out.dtype, [&]<typename Out>() {
            parallel_ranges(ctx, out.rows * strips, blocks.size(), [&](int64_t begin, int64_t end) {
                std::array<float, kStrip> sum;
                for (int64_t strip = begin; strip < end; ++strip) {
                    const int64_t row = strip / strips;
                    const int64_t first = strip % strips * kStrip;
                    const int64_t width = std::min(kStrip, out.cols - first);
                    Out* const to = out.as<Out>() + row * out.stride + first;
                    const auto part = [&](int64_t block) -> const In* {
                        if constexpr (std::is_same_v<In, Out>) {
                            if (block == own) return to;
                        }
                        return blocks.as<In>() + (block * out.rows + row) * blocks.stride + first;
                    };
                    const In* in = part(0);
#pragma omp simd
                    for (int64_t i = 0; i < width; ++i) sum[i] = to_float(in[i]);
                    for (int64_t block = 1; block < count; ++block) {
                        in = part(block);
#pragma omp simd
                        for (int64_t i = 0; i < width; ++i) sum[i] += to_float(in[i]);
                    }
#pragma omp simd
                    for (int64_t i = 0; i < width; ++i) to[i] = from_float<Out>(sum[i]);
                }
            });
        });
    });
}

}  // namespace vocabpipe::kernels::host
