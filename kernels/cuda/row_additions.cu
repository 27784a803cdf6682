// SPDX-License-Identifier: Apache-2.0
// Tokens are sorted by the row they add to (each counts the tokens before it: N^2 comparisons, 0.1
// ms for 32k tokens), then one block per row that occurs adds its tokens, ascending. No float
// atomics.
#include "kernels/check.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/row_additions.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kTokensAtOnce = 4;        ///< loads in flight per thread
constexpr int32_t kNoRow = 0x7fffffff;  ///< sorts behind all rows

__device__ __forceinline__ int32_t row_of(int32_t id, int64_t first_row, int64_t rows) {
    const int64_t row = id - first_row;
    return row >= 0 && row < rows ? static_cast<int32_t>(row) : kNoRow;
}

/// The tokens sorted by row, then by n, and their rows; those without a row last. A warp per token.
__global__ void __launch_bounds__(kThreads)
    sort_tokens_kernel(const int32_t* __restrict__ ids, int64_t tokens, int64_t first_row,
                       int64_t rows, int32_t* __restrict__ sorted_tokens,
                       int32_t* __restrict__ sorted_rows) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    constexpr int kWarps = kThreads / kWarpThreads;
    for (int64_t n = int64_t{blockIdx.x} * kWarps + warp; n < tokens;
         n += int64_t{gridDim.x} * kWarps) {
        const int32_t row = row_of(ids[n], first_row, rows);
        int before = 0;
        for (int64_t other = lane; other < tokens; other += kWarpThreads) {
            const int32_t other_row = row_of(ids[other], first_row, rows);
            before += other_row < row || (other_row == row && other < n) ? 1 : 0;
        }
        before = warp_sum(before);
        if (lane == 0) {
            sorted_tokens[before] = static_cast<int32_t>(n);
            sorted_rows[before] = row;
        }
    }
}

/// The end of the run of equal rows that starts at `place`: a few steps, as most runs are short.
__device__ int64_t end_of_run(const int32_t* sorted_rows, int64_t place, int64_t tokens) {
    const int32_t row = sorted_rows[place];
    int64_t inside = place;
    int64_t step = 1;
    while (inside + step < tokens && sorted_rows[inside + step] == row) {
        inside += step;
        step *= 2;
    }
    int64_t outside = inside + step < tokens ? inside + step : tokens;
    while (outside - inside > 1) {
        const int64_t middle = inside + (outside - inside) / 2;
        (sorted_rows[middle] == row ? inside : outside) = middle;
    }
    return outside;
}

/// Block (place, part): if the token at this place is the first of its row, adds all tokens of the
/// row, in every gridDim.y-th part of the columns.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    add_rows_kernel(const int32_t* __restrict__ sorted_tokens,
                    const int32_t* __restrict__ sorted_rows, int64_t tokens,
                    const T* __restrict__ from, int64_t from_stride,
                    const float* __restrict__ factors, int64_t factor_stride,
                    float* __restrict__ to, int64_t to_stride, int64_t cols) {
    for (int64_t place = blockIdx.x; place < tokens; place += gridDim.x) {
        const int32_t row = sorted_rows[place];
        if (row == kNoRow) return;
        if (place > 0 && sorted_rows[place - 1] == row) continue;
        const int64_t end = end_of_run(sorted_rows, place, tokens);
        for (int64_t col = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kCount; col < cols;
             col += int64_t{gridDim.y} * kThreads * kCount) {
            Vector<kCount> sum;
            sum.load(to + row * to_stride + col);
            for (int64_t first = place; first < end; first += kTokensAtOnce) {
                Vector<kCount> addend[kTokensAtOnce] = {};
                float factor[kTokensAtOnce] = {};
                for (int i = 0; i < kTokensAtOnce; ++i) {
                    if (first + i >= end) continue;
                    const int64_t n = sorted_tokens[first + i];
                    addend[i].load(from + n * from_stride + col);
                    factor[i] = factors == nullptr ? 1.0F : factors[n * factor_stride];
                }
                for (int i = 0; i < kTokensAtOnce; ++i) {
                    if (first + i >= end) continue;
                    for (int j = 0; j < kCount; ++j) sum[j] += factor[i] * addend[i][j];
                }
            }
            sum.store(to + row * to_stride + col);
        }
    }
}

}  // namespace

void add_rows_in_order(Context& ctx, std::span<const int32_t> ids, int64_t first_row,
                       ConstTensor from, ConstTensor factors, Tensor to) {
    const auto tokens = static_cast<int64_t>(ids.size());
    require(from.rows == tokens && from.cols == to.cols, "one row per id, as wide as the target");
    if (tokens == 0 || to.size() == 0) return;
    require(ctx.cuda().workspace().size() >= 2 * ids.size_bytes(),
            "few enough tokens for the workspace of the lane");
    auto* const sorted_tokens = reinterpret_cast<int32_t*>(ctx.cuda().workspace().data());
    auto* const sorted_rows = sorted_tokens + tokens;
    launch(ctx, sort_tokens_kernel, blocks_for(tokens, kThreads / kWarpThreads), kThreads,
           ids.data(), tokens, first_row, to.rows, sorted_tokens, sorted_rows);
    with_element_type(from.dtype, [&]<typename T>() {
        const auto add = [&]<int kCount>() {
            const dim3 grid(blocks_for(tokens, 1),
                            std::min(blocks_for(to.cols, kThreads * kCount), 64U));
            launch(ctx, add_rows_kernel<T, kCount>, grid, kThreads, sorted_tokens, sorted_rows,
                   tokens, from.as<T>(), from.stride, factors.as<float>(), factors.stride,
                   to.as<float>(), to.stride, to.cols);
        };
        with_vectors(add, from, to);
    });
}

}  // namespace vocabpipe::kernels::cuda
