// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstdint>
#include <cub/device/device_radix_sort.cuh>
#include <string>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/expert_checks.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kRowsPerBlock = kThreads / kWarpThreads;

/// The weights of slots; 1 without.
struct SlotWeights {
    const float* data;
    int64_t per_token, stride;

    explicit SlotWeights(ConstTensor weights)
        : data(weights.as<float>()), per_token(weights.cols), stride(weights.stride) {}
    __device__ __forceinline__ float of(int64_t slot) const {
        return data == nullptr ? 1.0F : data[slot / per_token * stride + slot % per_token];
    }
};

__global__ void __launch_bounds__(kThreads)
    experts_of_slots_kernel(const int32_t* __restrict__ choice, int64_t slots,
                            uint32_t* __restrict__ expert, int32_t* __restrict__ slot) {
    const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (i >= slots) return;
    expert[i] = static_cast<uint32_t>(choice[i]);
    slot[i] = static_cast<int32_t>(i);
}

__global__ void __launch_bounds__(kThreads)
    write_order_kernel(const int32_t* __restrict__ sorted, int64_t slots,
                       int32_t* __restrict__ row_of_slot, int32_t* __restrict__ slot_of_row) {
    const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (row >= slots) return;
    slot_of_row[row] = sorted[row];
    row_of_slot[sorted[row]] = static_cast<int32_t>(row);
}

/// row_begin[e]: index of the first of the sorted experts that is e or more.
__global__ void __launch_bounds__(kThreads)
    row_begin_kernel(const uint32_t* __restrict__ experts, int64_t slots, int64_t count,
                     int32_t* __restrict__ row_begin) {
    const int64_t e = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (e >= count) return;
    int64_t begin = 0, end = slots;
    while (begin < end) {
        const int64_t middle = begin + (end - begin) / 2;
        if (experts[middle] < e) {
            begin = middle + 1;
        } else {
            end = middle;
        }
    }
    row_begin[e] = static_cast<int32_t>(begin);
}

// One block of threads per row in the kernels that move rows.

/// y[r] = weight * x[slot / per_token], or x[r] where per_token is 0: then y may be x.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    weighted_rows_kernel(const T* x, int64_t x_stride, const int32_t* __restrict__ slot_of_row,
                         int64_t per_token, SlotWeights weights, T* y, int64_t y_stride,
                         int64_t rows, int64_t cols) {
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const int64_t slot = slot_of_row[row];
        const float weight = weights.of(slot);
        const T* const from = x + (per_token == 0 ? row : slot / per_token) * x_stride;
        for (int64_t col = int64_t{threadIdx.x} * kCount; col < cols; col += kThreads * kCount) {
            auto values = loaded<T, kCount>(from + col);
            for (int i = 0; i < kCount; ++i) values[i] *= weight;
            values.store(y + row * y_stride + col);
        }
    }
}

/// y may be residual.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    combine_kernel(const T* __restrict__ rows, int64_t rows_stride,
                   const int32_t* __restrict__ row_of_slot, int64_t per_token, SlotWeights weights,
                   const T* residual, int64_t residual_stride, T* y, int64_t y_stride,
                   int64_t tokens, int64_t cols) {
    for (int64_t n = blockIdx.x; n < tokens; n += gridDim.x) {
        for (int64_t col = int64_t{threadIdx.x} * kCount; col < cols; col += kThreads * kCount) {
            Vector<kCount> sum = {};
            if (residual != nullptr) sum.load(residual + n * residual_stride + col);
            for (int64_t slot = n * per_token; slot < (n + 1) * per_token; ++slot) {
                const int64_t row = row_of_slot[slot];
                if (row < 0) continue;
                const float weight = weights.of(slot);
                const auto values = loaded<T, kCount>(rows + row * rows_stride + col);
                for (int i = 0; i < kCount; ++i) sum[i] = fmaf(weight, values[i], sum[i]);
            }
            sum.store(y + n * y_stride + col);
        }
    }
}

/// Where each part's rows are, passed by value: a launch takes 4 KiB of arguments.
template <typename T>
struct PartsOf {
    const T* data[kMostParts];
    int32_t stride[kMostParts];
};

/// y may be residual.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    combine_parts_kernel(const PartsOf<T> parts, int64_t count,
                         const int32_t* __restrict__ row_of_slot, const T* residual,
                         int64_t residual_stride, T* y, int64_t y_stride, int64_t tokens,
                         int64_t cols) {
    for (int64_t n = blockIdx.x; n < tokens; n += gridDim.x) {
        for (int64_t col = int64_t{threadIdx.x} * kCount; col < cols; col += kThreads * kCount) {
            Vector<kCount> sum = {};
            if (residual != nullptr) sum.load(residual + n * residual_stride + col);
            for (int64_t part = 0; part < count; ++part) {
                const int64_t row = row_of_slot[n * count + part];
                if (row < 0) continue;
                const auto values =
                    loaded<T, kCount>(parts.data[part] + row * parts.stride[part] + col);
                for (int i = 0; i < kCount; ++i) sum[i] += values[i];
            }
            sum.store(y + n * y_stride + col);
        }
    }
}

/// A warp per row.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    weight_gradients_kernel(const T* __restrict__ dy, int64_t dy_stride, const T* __restrict__ rows,
                            int64_t rows_stride, const int32_t* __restrict__ slot_of_row,
                            float* __restrict__ dweights, int64_t per_token,
                            int64_t dweights_stride, int64_t count, int64_t cols) {
    const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarpThreads;
    if (row >= count) return;  // whole warps
    const unsigned lane = threadIdx.x % kWarpThreads;
    float sum = 0;
    for (int64_t col = int64_t{lane} * kCount; col < cols; col += int64_t{kWarpThreads} * kCount) {
        const auto a = loaded<T, kCount>(dy + row * dy_stride + col);
        const auto b = loaded<T, kCount>(rows + row * rows_stride + col);
        for (int i = 0; i < kCount; ++i) sum += a[i] * b[i];
    }
    sum = warp_sum(sum);
    const int64_t slot = slot_of_row[row];
    if (lane == 0) dweights[slot / per_token * dweights_stride + slot % per_token] = sum;
}

void weighted_rows(CallSite ctx, ConstTensor x, std::span<const int32_t> slot_of_row,
                   int64_t per_token, ConstTensor weights, Tensor y) {
    if (y.size() == 0) return;
    with_element_type(x.dtype, [&]<typename T>() {
        const auto move = [&]<int kCount>() {
            launch(ctx, weighted_rows_kernel<T, kCount>, blocks_for(y.rows, 1), kThreads, x.as<T>(),
                   x.stride, slot_of_row.data(), per_token, SlotWeights(weights), y.as<T>(),
                   y.stride, y.rows, y.cols);
        };
        with_vectors<widest<T>()>(move, x, y);
    });
}

}  // namespace

/// Uses 16 N k bytes of the lane's workspace and the memory of CUB's radix sort.
void sort_by_expert(Context& ctx, std::span<const int32_t> choice, std::span<int32_t> row_begin,
                    std::span<int32_t> row_of_slot, std::span<int32_t> slot_of_row) {
    require_expert_order(choice, row_begin, row_of_slot, slot_of_row);
    require(choice.size() < size_t{1} << 31, "fewer than 2^31 slots");
    const auto slots = static_cast<int64_t>(choice.size());
    const auto begins = static_cast<int64_t>(row_begin.size());
    const size_t rounded = (choice.size() + 63) / 64 * 64;  // 256-byte alignment of the next array
    const auto workspace = ctx.cuda().workspace();
    auto* const numbers = reinterpret_cast<uint32_t*>(workspace.data());
    auto* const slot_numbers = reinterpret_cast<int32_t*>(numbers + 2 * rounded);
    cub::DoubleBuffer<uint32_t> expert(numbers, numbers + rounded);
    cub::DoubleBuffer<int32_t> slot(slot_numbers, slot_numbers + rounded);
    if (slots > 0) {
        const auto sort = [&](void* space, size_t& bytes) {
            check(cub::DeviceRadixSort::SortPairs(
                      space, bytes, expert, slot, static_cast<int>(slots), 0,
                      std::bit_width(static_cast<uint32_t>(begins)), ctx.cuda().stream()),
                  "cub::DeviceRadixSort::SortPairs");
        };
        size_t bytes = 0;
        sort(nullptr, bytes);  // only gets the size
        const size_t before = 4 * rounded * sizeof(uint32_t);
        require(workspace.size() >= before + bytes,
                "few enough tokens for the workspace of the lane");
        launch(ctx, experts_of_slots_kernel, blocks_for(slots, kThreads), kThreads, choice.data(),
               slots, numbers, slot_numbers);
        sort(workspace.data() + before, bytes);
        check_call(ctx, [&] { return "radix sort of " + std::to_string(slots) + " slots"; });
        launch(ctx, write_order_kernel, blocks_for(slots, kThreads), kThreads, slot.Current(),
               slots, row_of_slot.data(), slot_of_row.data());
    }
    launch(ctx, row_begin_kernel, blocks_for(begins, kThreads), kThreads, expert.Current(), slots,
           begins, row_begin.data());
}

void gather_rows(Context& ctx, ConstTensor x, std::span<const int32_t> slot_of_row,
                 int64_t per_token, ConstTensor weights, Tensor y) {
    require_gather_rows(x, slot_of_row, per_token, weights, y);
    weighted_rows(ctx, x, slot_of_row, per_token, weights, y);
}

void combine_rows(Context& ctx, ConstTensor rows, std::span<const int32_t> row_of_slot,
                  int64_t per_token, ConstTensor weights, ConstTensor residual, Tensor y) {
    require_combine_rows(rows, row_of_slot, per_token, weights, residual, y);
    if (y.size() == 0) return;
    with_element_type(rows.dtype, [&]<typename T>() {
        const auto combine = [&]<int kCount>() {
            launch(ctx, combine_kernel<T, kCount>, blocks_for(y.rows, 1), kThreads, rows.as<T>(),
                   rows.stride, row_of_slot.data(), per_token, SlotWeights(weights),
                   residual.as<T>(), residual.stride, y.as<T>(), y.stride, y.rows, y.cols);
        };
        with_vectors<widest<T>()>(combine, rows, residual, y);
    });
}

void combine_parts(Context& ctx, std::span<const ConstTensor> parts,
                   std::span<const int32_t> row_of_slot, ConstTensor residual, Tensor y) {
    require_combine_parts(parts, row_of_slot, residual, y);
    if (y.size() == 0) return;
    with_element_type(y.dtype, [&]<typename T>() {
        PartsOf<T> all = {};
        bool vectors = true;
        for (size_t i = 0; i < parts.size(); ++i) {
            all.data[i] = parts[i].as<T>();
            all.stride[i] = static_cast<int32_t>(parts[i].stride);
            with_vectors([&]<int kCount>() { vectors = vectors && kCount > 1; }, parts[i]);
        }
        const auto combine = [&]<int kCount>() {
            launch(ctx, combine_parts_kernel<T, kCount>, blocks_for(y.rows, 1), kThreads, all,
                   static_cast<int64_t>(parts.size()), row_of_slot.data(), residual.as<T>(),
                   residual.stride, y.as<T>(), y.stride, y.rows, y.cols);
        };
        if (vectors) {
            with_vectors<widest<T>()>(combine, residual, y);
        } else {
            combine.template operator()<1>();
        }
    });
}

void combine_backward_weights(Context& ctx, ConstTensor dy, ConstTensor rows,
                              std::span<const int32_t> slot_of_row, Tensor dweights) {
    require_row_products(dy, rows, slot_of_row, dweights);
    if (rows.rows == 0) return;
    with_element_type(dy.dtype, [&]<typename T>() {
        const auto multiply = [&]<int kCount>() {
            launch(ctx, weight_gradients_kernel<T, kCount>, blocks_for(rows.rows, kRowsPerBlock),
                   kThreads, dy.as<T>(), dy.stride, rows.as<T>(), rows.stride, slot_of_row.data(),
                   dweights.as<float>(), dweights.cols, dweights.stride, rows.rows, rows.cols);
        };
        with_vectors(multiply, dy, rows);
    });
}

void scale_rows(Context& ctx, ConstTensor x, std::span<const int32_t> slot_of_row,
                ConstTensor weights, Tensor y) {
    require_scale_rows(x, slot_of_row, weights, y);
    weighted_rows(ctx, x, slot_of_row, 0, weights, y);
}

}  // namespace vocabpipe::kernels::cuda
