// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <string>

#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::cuda {

/// Throws DeviceError, naming the call, unless it succeeded.
inline void check(cudaError_t status, const char* call) {
    if (status == cudaSuccess) return;
    throw DeviceError(std::string(call) + ": " + cudaGetErrorName(status) + ": " +
                      cudaGetErrorString(status));
}

}  // namespace vocabpipe::kernels::cuda
