// SPDX-License-Identifier: Apache-2.0
// What functions need that host code and kernels of GPUs share.
#pragma once

#include <span>

/// Before such a function.
#ifdef __CUDACC__
#define VOCABPIPE_HOST_AND_DEVICE __host__ __device__
#else
#define VOCABPIPE_HOST_AND_DEVICE
#endif

namespace vocabpipe::kernels {

/// A span as kernels take it: null where it is empty, whose data() may be anything.
template <typename T>
[[nodiscard]] T* data_of(std::span<T> values) {
    return values.empty() ? nullptr : values.data();
}

}  // namespace vocabpipe::kernels
