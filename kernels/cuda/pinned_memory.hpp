// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "kernels/cuda/check.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::cuda {

/// Pinned memory of the host, for cudaFreeHost. Throws OutOfMemoryError; `what` says what it is for
/// and how much it is.
[[nodiscard]] inline std::byte* allocate_pinned(size_t bytes, const std::string& what) {
    void* data = nullptr;
    const cudaError_t status = cudaMallocHost(&data, bytes);
    if (status == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();  // else the next check would report it again
        throw OutOfMemoryError(what +
                               " of pinned host memory cannot be allocated; use fewer ranks per "
                               "host, or more hosts");
    }
    check(status, "cudaMallocHost");
    return static_cast<std::byte*>(data);
}

}  // namespace vocabpipe::kernels::cuda
