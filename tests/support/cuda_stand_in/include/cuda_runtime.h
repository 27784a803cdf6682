// SPDX-License-Identifier: Apache-2.0
#pragma once

// The stand-in CUDA toolkit of the tests: the same interface over host memory and threads.
#include "cuda_runtime_api.h"
#include "cuda_stand_in/device_code.h"
#include "cuda_stand_in/launch.h"
#include "cuda_stand_in/matrix_instructions.h"
#include "library_types.h"

template <typename T>
cudaError_t cudaMalloc(T** pointer, size_t bytes) {
    return ::cudaMalloc(static_cast<void**>(static_cast<void*>(pointer)), bytes);
}
template <typename T>
cudaError_t cudaMallocHost(T** pointer, size_t bytes, unsigned int flags = 0) {
    return ::cudaHostAlloc(static_cast<void**>(static_cast<void*>(pointer)), bytes, flags);
}
template <typename T>
cudaError_t cudaFuncSetAttribute(T* function, cudaFuncAttribute attribute, int value) {
    return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(function), attribute, value);
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event, unsigned int flags) {
    return ::cudaEventCreateWithFlags(event, flags);
}
