// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "kernels/cuda/check.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::cuda {

/// Allocates pinned host memory, to be freed with cudaFreeHost. Throws OutOfMemoryError; `what`
/// names its purpose and size.
[[nodiscard]] inline std::byte* allocate_pinned(size_t bytes, const std::string& what) {
    void* data = nullptr;
    const cudaError_t status = cudaMallocHost(&data, bytes);
    if (status == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();  // otherwise the next check reports it again
        throw OutOfMemoryError(what +
                               " of pinned host memory cannot be allocated; use fewer ranks per "
                               "host, or more hosts");
    }
    check(status, "cudaMallocHost");
    return static_cast<std::byte*>(data);
}

}  // namespace vocabpipe::kernels::cuda
