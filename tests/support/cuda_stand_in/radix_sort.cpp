// SPDX-License-Identifier: Apache-2.0
// What the product asks of CUB, of the stand-in's header and, by nvcc, of the real one: the same
// overload must be there.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cub/device/device_radix_sort.cuh>
#include <type_traits>
#include <utility>

namespace {

using Keys = cub::DoubleBuffer<uint32_t>;
using Values = cub::DoubleBuffer<int32_t>;
using SortPairs = cudaError_t (*)(void*, size_t&, Keys&, Values&, int, int, int, cudaStream_t);

[[maybe_unused]] constexpr SortPairs kSortPairs =
    &cub::DeviceRadixSort::SortPairs<uint32_t, int32_t, int>;
static_assert(std::is_constructible_v<Keys, uint32_t*, uint32_t*>);
static_assert(std::is_same_v<decltype(std::declval<Keys&>().Current()), uint32_t*>);
static_assert(std::is_same_v<decltype(std::declval<Keys&>().Alternate()), uint32_t*>);
static_assert(std::is_same_v<decltype(std::declval<Keys&>().selector), int>);

}  // namespace
