// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>
#include <array>

#include "kernels/check.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

namespace {

constexpr int64_t kLanes = 16;

/// Adds the squares of `count` elements to lanes[(lane + i) % kLanes]; count + lane <=
/// kSquaresBlock.
void add_squares(std::array<double, kLanes>& lanes, int64_t lane, const float* x, int64_t count) {
    int64_t i = 0;
    for (; i < count && (lane + i) % kLanes != 0; ++i) {
        lanes[static_cast<size_t>((lane + i) % kLanes)] += static_cast<double>(x[i]) * x[i];
    }
    std::array<double, kLanes> sums = lanes;
    for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
        for (int64_t l = 0; l < kLanes; ++l) sums[l] += static_cast<double>(x[i + l]) * x[i + l];
    }
    lanes = sums;
    for (int64_t l = 0; i < count; ++i, ++l) lanes[l] += static_cast<double>(x[i]) * x[i];
}

/// Sum over elements [begin, end) in row-major order.
double block_sum(ConstTensor values, int64_t begin, int64_t end) {
    std::array<double, kLanes> lanes{};
    for (int64_t at = begin; at < end;) {
        const int64_t row = at / values.cols;
        const int64_t col = at % values.cols;
        const int64_t count = std::min(values.cols - col, end - at);
        add_squares(lanes, at - begin, values.as<float>() + row * values.stride + col, count);
        at += count;
    }
    for (size_t half = kLanes / 2; half > 0; half /= 2) {
        for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
    }
    return lanes[0];
}

}  // namespace

void sum_of_squares(Context& ctx, ConstTensor values, double* sum) {
    require(values.dtype == DType::fp32, "an fp32 tensor");
    if (values.stride == values.cols) {
        values = {values.data, 1, values.size(),
                  DType::fp32};  // one run instead of many short ones
    }
    constexpr int64_t kBlocksAtOnce = 1024;
    std::array<double, kBlocksAtOnce> sums;
    const int64_t blocks = (values.size() + kSquaresBlock - 1) / kSquaresBlock;
    double total = 0;
    for (int64_t first = 0; first < blocks; first += kBlocksAtOnce) {
        const int64_t now = std::min(kBlocksAtOnce, blocks - first);
        parallel_ranges(ctx, now, now * kSquaresBlock, [&](int64_t from, int64_t to) {
            for (int64_t block = from; block < to; ++block) {
                const int64_t begin = (first + block) * kSquaresBlock;
                sums[static_cast<size_t>(block)] =
                    block_sum(values, begin, std::min(begin + kSquaresBlock, values.size()));
            }
        });
        for (int64_t block = 0; block < now; ++block) total += sums[static_cast<size_t>(block)];
        ctx.poll();
    }
    *sum += total;
}

}  // namespace vocabpipe::kernels::host
