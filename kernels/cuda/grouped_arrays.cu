// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/grouped_arrays.hpp"

#include <algorithm>
#include <iterator>

#include "kernels/cuda/launch.cuh"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kGroupThreads = 128;

/// Rows of some experts, by value, so that there is no copy to wait for: a launch takes 4 KiB of
/// arguments.
constexpr int32_t kExpertsPerLaunch = 256;
struct GroupRows {
    int32_t first[kExpertsPerLaunch], count[kExpertsPerLaunch];
};

__device__ __forceinline__ std::byte* operand_of(const GroupedOperand& operand, int64_t expert,
                                                 int64_t first_row) {
    return operand.data + expert * operand.per_expert + first_row * operand.per_row;
}

__global__ void __launch_bounds__(kGroupThreads)
    prepare_groups_kernel(const GroupedProblem p, const GroupRows rows, int32_t first_expert,
                          int32_t experts, const GroupedArrays to) {
    const auto i = static_cast<int32_t>(blockIdx.x * kGroupThreads + threadIdx.x);
    if (i >= experts) return;
    const int32_t e = first_expert + i;
    const int32_t first = rows.first[i], count = rows.count[i];
    GroupSize size{0, 0, 0};
    if (count > 0) {
        size = {p.rows_are_terms ? p.m : count, p.n, p.rows_are_terms ? count : p.k};
    }
    to.sizes[e] = size;
    to.a[e] = operand_of(p.a, e, first);
    to.b[e] = operand_of(p.b, e, first);
    to.d[e] = operand_of(p.d, e, first);
    to.a_stride[e] = p.a.stride;
    to.b_stride[e] = p.b.stride;
    to.d_stride[e] = p.d.stride;
}

/// A column of blocks per expert.
__global__ void __launch_bounds__(kGroupThreads)
    clear_groups_kernel(const GroupedProblem p, const GroupedArrays arrays) {
    const int64_t e = blockIdx.y;
    if (arrays.sizes[e].k != 0) return;
    auto* const d = static_cast<float*>(arrays.d[e]);
    for (int64_t row = blockIdx.x; row < p.m; row += gridDim.x) {
        for (int64_t col = threadIdx.x; col < p.n; col += kGroupThreads) {
            d[row * p.d.stride + col] = 0.0F;
        }
    }
}

constexpr int64_t kArrayAlignment = 16;
constexpr int64_t kArraysAlignment = 256;

int64_t round_up_to(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

int64_t GroupedArrays::bytes(int64_t experts) {
    constexpr int64_t kPointersAndStrides = 6;
    return round_up_to(
        round_up_to(experts * int64_t{sizeof(GroupSize)}, kArrayAlignment) +
            kPointersAndStrides * round_up_to(experts * int64_t{sizeof(void*)}, kArrayAlignment),
        kArraysAlignment);
}

GroupedArrays GroupedArrays::at(std::span<std::byte> memory, int64_t experts) {
    std::byte* next = memory.data();
    const auto take = [&]<typename T>(T*& array) {
        array = reinterpret_cast<T*>(next);
        next += round_up_to(experts * int64_t{sizeof(T)}, kArrayAlignment);
    };
    GroupedArrays arrays{.experts = static_cast<int32_t>(experts)};
    take(arrays.sizes);
    take(arrays.a);
    take(arrays.b);
    take(arrays.d);
    take(arrays.a_stride);
    take(arrays.b_stride);
    take(arrays.d_stride);
    return arrays;
}

void prepare_groups(CallSite ctx, const GroupedProblem& problem, std::span<const RowRange> rows,
                    const GroupedArrays& arrays) {
    const auto experts = static_cast<int32_t>(std::ssize(rows));
    for (int32_t begin = 0; begin < experts; begin += kExpertsPerLaunch) {
        const int32_t count = std::min(experts - begin, kExpertsPerLaunch);
        GroupRows some{};
        for (int32_t i = 0; i < count; ++i) {
            const RowRange& range = rows[static_cast<size_t>(begin + i)];
            some.first[i] = static_cast<int32_t>(range.first);
            some.count[i] = static_cast<int32_t>(range.size());
        }
        launch(ctx, prepare_groups_kernel, dim3(blocks_for(count, kGroupThreads)),
               dim3(kGroupThreads), problem, some, begin, count, arrays);
    }
}

void clear_groups_without_rows(CallSite ctx, const GroupedProblem& problem,
                               const GroupedArrays& arrays) {
    constexpr int64_t kBlocksPerExpert = 64;
    const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(problem.m, 1, kBlocksPerExpert));
    launch(ctx, clear_groups_kernel, dim3(blocks, static_cast<unsigned>(arrays.experts)),
           dim3(kGroupThreads), problem, arrays);
}

}  // namespace vocabpipe::kernels::cuda
