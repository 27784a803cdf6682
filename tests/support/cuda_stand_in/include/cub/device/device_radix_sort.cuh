// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one function of CUB that the product uses, over the stand-in's streams. As in CUB: a call
// without temporary storage only says how much it needs, the sort is stable and looks at the bits
// [begin_bit, end_bit) only, which of the two buffers holds the result is known after the call, and
// the last error of the thread counts, whoever made it.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace cub {

template <typename T>
struct DoubleBuffer {
    T* d_buffers[2];
    int selector = 0;

    DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
    T* Current() { return d_buffers[selector]; }
    T* Alternate() { return d_buffers[selector ^ 1]; }
};

namespace stand_in {

inline constexpr int kBitsPerPass = 8;

/// One thread. What is not the result is garbage afterwards.
template <typename Key, typename Value>
void sort_kernel(Key* keys, Key* other_keys, Value* values, Value* other_values, size_t count,
                 Key mask, bool swapped, std::byte* temporary, size_t temporary_bytes) {
    std::vector<std::pair<Key, Value>> pairs(count);
    for (size_t i = 0; i < count; ++i) pairs[i] = {keys[i], values[i]};
    std::stable_sort(pairs.begin(), pairs.end(), [mask](const auto& a, const auto& b) {
        return (a.first & mask) < (b.first & mask);
    });
    std::memset(temporary, 0xff, temporary_bytes);
    std::memset(swapped ? keys : other_keys, 0xff, count * sizeof(Key));
    std::memset(swapped ? values : other_values, 0xff, count * sizeof(Value));
    for (size_t i = 0; i < count; ++i) {
        (swapped ? other_keys : keys)[i] = pairs[i].first;
        (swapped ? other_values : values)[i] = pairs[i].second;
    }
}

}  // namespace stand_in

struct DeviceRadixSort {
    template <typename KeyT, typename ValueT, typename NumItemsT>
    static cudaError_t SortPairs(void* d_temp_storage, size_t& temp_storage_bytes,
                                 DoubleBuffer<KeyT>& d_keys, DoubleBuffer<ValueT>& d_values,
                                 NumItemsT num_items, int begin_bit = 0,
                                 int end_bit = sizeof(KeyT) * 8, cudaStream_t stream = nullptr) {
        static_assert(std::is_unsigned_v<KeyT>, "the stand-in sorts unsigned keys");
        const auto count = static_cast<size_t>(num_items);
        const size_t needed = 2048 + count / 2;
        if (d_temp_storage == nullptr) {
            temp_storage_bytes = needed;
            return cudaSuccess;
        }
        if (temp_storage_bytes < needed || begin_bit < 0 || begin_bit > end_bit ||
            end_bit > static_cast<int>(sizeof(KeyT)) * 8) {
            return cudaErrorInvalidValue;
        }
        uint64_t mask = 0;
        for (int bit = begin_bit; bit < end_bit; ++bit) mask |= uint64_t{1} << bit;
        const int passes =
            (end_bit - begin_bit + stand_in::kBitsPerPass - 1) / stand_in::kBitsPerPass;
        const bool swapped = passes % 2 != 0;
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(1);
        config.blockDim = dim3(1);
        config.stream = stream;
        const cudaError_t status = cudaLaunchKernelEx(
            &config, stand_in::sort_kernel<KeyT, ValueT>, d_keys.Current(), d_keys.Alternate(),
            d_values.Current(), d_values.Alternate(), count, static_cast<KeyT>(mask), swapped,
            static_cast<std::byte*>(d_temp_storage), needed);
        if (status != cudaSuccess) return status;
        if (swapped) {
            d_keys.selector ^= 1;
            d_values.selector ^= 1;
        }
        return cudaPeekAtLastError();
    }
};

}  // namespace cub
