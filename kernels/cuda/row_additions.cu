// SPDX-License-Identifier: Apache-2.0
// CUB's stable radix sort sorts tokens by the row they add to, so that tokens of one row stay in
// their order; then one block per row that occurs adds its tokens, ascending. No float atomics.
#include "kernels/cuda/row_additions.hpp"

#include <bit>
#include <cub/device/device_radix_sort.cuh>
#include <string>

#include "kernels/check.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;
/// The additions to one row are a chain in the tokens' order. A frequent id's chain (a fifth of all
/// characters are spaces) is longer than all the others together, so it has more loads in flight;
/// that costs registers, which makes short chains slower: 115 instead of 52 us for 16384 tokens
/// that are all different (H200). So there are two kernels.
constexpr int kLongChain = 16;
constexpr int kLoadsOfShort = 4;  ///< in flight per thread
constexpr int kLoadsOfLong = 16;
constexpr unsigned kBlocksOfLong = 1024;  ///< few chains are long: a block looks at several places

/// Tokens without a row get the number after the last one, and are sorted behind all rows.
__global__ void __launch_bounds__(kThreads)
    rows_of_tokens_kernel(const int32_t* __restrict__ ids, int64_t tokens, int64_t first_row,
                          int64_t rows, uint32_t* __restrict__ row_of,
                          int32_t* __restrict__ token) {
    const int64_t n = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (n >= tokens) return;
    const int64_t row = ids[n] - first_row;
    row_of[n] = static_cast<uint32_t>(row >= 0 && row < rows ? row : rows);
    token[n] = static_cast<int32_t>(n);
}

/// The tokens by row, then by n, and their rows; tokens without a row come last and have row
/// `rows`.
struct SortedTokens {
    const uint32_t* rows;
    const int32_t* tokens;
};

/// The result is in the lane's workspace.
SortedTokens sorted_by_row(CallSite ctx, std::span<const int32_t> ids, int64_t first_row,
                           int64_t rows) {
    require(rows < int64_t{1} << 31 && ids.size() < size_t{1} << 31,
            "fewer than 2^31 rows and ids");
    const size_t count = ids.size();
    const size_t rounded = (count + 63) / 64 * 64;  // 256-byte alignment of the next array
    auto* const numbers = reinterpret_cast<uint32_t*>(ctx.cuda().workspace().data());
    auto* const tokens = reinterpret_cast<int32_t*>(numbers + 2 * rounded);
    cub::DoubleBuffer<uint32_t> row_of(numbers, numbers + rounded);
    cub::DoubleBuffer<int32_t> token(tokens, tokens + rounded);
    const auto sort = [&](void* space, size_t& bytes) {
        check(cub::DeviceRadixSort::SortPairs(space, bytes, row_of, token, static_cast<int>(count),
                                              0, std::bit_width(static_cast<uint32_t>(rows)),
                                              ctx.cuda().stream()),
              "cub::DeviceRadixSort::SortPairs");
    };
    size_t bytes = 0;
    sort(nullptr, bytes);  // only gets the size
    const size_t before = 4 * rounded * sizeof(uint32_t);
    require(ctx.cuda().workspace().size() >= before + bytes,
            "few enough tokens for the workspace of the lane");
    launch(ctx, rows_of_tokens_kernel, blocks_for(static_cast<int64_t>(count), kThreads), kThreads,
           ids.data(), static_cast<int64_t>(count), first_row, rows, numbers, tokens);
    sort(ctx.cuda().workspace().data() + before, bytes);
    check_call(ctx, [&] { return "radix sort of " + std::to_string(count) + " ids"; });
    return {.rows = row_of.Current(), .tokens = token.Current()};
}

/// The end of the run of equal rows that starts at `place`: a few steps, as most runs are short.
__device__ int64_t end_of_run(const uint32_t* sorted_rows, int64_t place, int64_t tokens) {
    const uint32_t row = sorted_rows[place];
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

template <typename T>
struct Additions {
    SortedTokens sorted;
    int64_t tokens;
    const T* from;
    int64_t from_stride;
    const float* factors;  ///< or null: 1
    int64_t factor_stride;
    float* to;
    int64_t to_stride, rows, cols;
    const float* scales;
    int64_t scale_stride;
    T* scaled;  ///< (tokens, cols), or null
    int64_t scaled_stride;
};

/// Neighbours in memory, in its type.
template <typename T, int kCount>
struct alignas(kCount == 1 ? sizeof(T) : 16) Raw {
    T values[kCount];
};

/// Block (place, part): if the token at this place is the first of its row, adds all tokens of the
/// row, in every gridDim.y-th part of the columns. With kScaled it also scales what it reads, and
/// does so for tokens without a row, too. kLong: only chains longer than kLongChain; otherwise only
/// the others.
template <typename T, int kCount, bool kScaled, bool kLong>
__global__ void __launch_bounds__(kThreads) add_rows_kernel(Additions<T> a) {
    constexpr int kLoads = kLong ? kLoadsOfLong : kLoadsOfShort;
    for (int64_t place = blockIdx.x; place < a.tokens; place += gridDim.x) {
        const uint32_t row = a.sorted.rows[place];
        const bool adds = row < a.rows;
        if (!adds && (kLong || !kScaled)) return;
        if (adds && place > 0 && a.sorted.rows[place - 1] == row) continue;
        const bool is_long =
            adds && place + kLongChain < a.tokens && a.sorted.rows[place + kLongChain] == row;
        if (is_long != kLong) continue;
        const int64_t end = adds ? end_of_run(a.sorted.rows, place, a.tokens) : place + 1;
        for (int64_t col = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * kCount; col < a.cols;
             col += int64_t{gridDim.y} * kThreads * kCount) {
            Vector<kCount> sum = {};
            if (adds) sum.load(a.to + row * a.to_stride + col);
            for (int64_t first = place; first < end; first += kLoads) {
                Raw<T, kCount> loaded[kLoads] = {};
                float factor[kLoads] = {};
                for (int i = 0; i < kLoads; ++i) {
                    if (first + i >= end) continue;
                    const int64_t n = a.sorted.tokens[first + i];
                    loaded[i] =
                        *reinterpret_cast<const Raw<T, kCount>*>(a.from + n * a.from_stride + col);
                    factor[i] = a.factors == nullptr ? 1.0F : a.factors[n * a.factor_stride];
                }
                for (int i = 0; i < kLoads; ++i) {
                    if (first + i >= end) continue;
                    Vector<kCount> addend;
                    addend.load(loaded[i].values);
                    for (int j = 0; j < kCount; ++j) sum[j] = fmaf(factor[i], addend[j], sum[j]);
                    if constexpr (kScaled) {
                        const int64_t n = a.sorted.tokens[first + i];
                        const float scale = a.scales[n * a.scale_stride];
                        for (int j = 0; j < kCount; ++j) addend[j] *= scale;
                        addend.store(a.scaled + n * a.scaled_stride + col);
                    }
                }
            }
            if (adds) sum.store(a.to + row * a.to_stride + col);
        }
    }
}

}  // namespace

void add_rows_in_order(CallSite ctx, std::span<const int32_t> ids, int64_t first_row,
                       ConstTensor from, ConstTensor factors, Tensor to, ConstTensor scales,
                       Tensor scaled) {
    const auto tokens = static_cast<int64_t>(ids.size());
    require(from.rows == tokens && from.cols == to.cols, "one row per id, as wide as the target");
    require(!scaled || (same_shape(from, scaled) && from.dtype == scaled.dtype),
            "scaled rows of the shape and type of the rows");
    if (tokens == 0 || to.size() == 0) return;
    const SortedTokens sorted = sorted_by_row(ctx, ids, first_row, to.rows);
    with_element_type(from.dtype, [&]<typename T>() {
        const Additions<T> additions{.sorted = sorted,
                                     .tokens = tokens,
                                     .from = from.as<T>(),
                                     .from_stride = from.stride,
                                     .factors = factors.as<float>(),
                                     .factor_stride = factors.stride,
                                     .to = to.as<float>(),
                                     .to_stride = to.stride,
                                     .rows = to.rows,
                                     .cols = to.cols,
                                     .scales = scales.as<float>(),
                                     .scale_stride = scales.stride,
                                     .scaled = scaled.as<T>(),
                                     .scaled_stride = scaled.stride};
        const auto add = [&]<int kCount>() {
            const unsigned parts = std::min(blocks_for(to.cols, kThreads * kCount), 64U);
            launch(ctx,
                   scaled ? add_rows_kernel<T, kCount, true, false>
                          : add_rows_kernel<T, kCount, false, false>,
                   dim3(blocks_for(tokens, 1), parts), kThreads, additions);
            if (tokens <= kLongChain) return;
            launch(ctx,
                   scaled ? add_rows_kernel<T, kCount, true, true>
                          : add_rows_kernel<T, kCount, false, true>,
                   dim3(std::min(blocks_for(tokens, 1), kBlocksOfLong), parts), kThreads,
                   additions);
        };
        with_vectors(add, from, to, scaled);
    });
}

}  // namespace vocabpipe::kernels::cuda
