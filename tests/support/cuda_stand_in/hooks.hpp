// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "control.hpp"

/// What every call of the stand-in does first and last, and the state of the calling thread.
namespace cuda_stand_in {

/// First line of a call: the error that a test arranged, cudaErrorNoDevice without devices, that of
/// a lost context, or cudaSuccess. The error is already reported.
[[nodiscard]] cudaError_t enter(const char* function);

/// Keeps an error for cudaGetLastError of this thread, and returns it.
cudaError_t report(cudaError_t error);

/// Device of the calling thread.
[[nodiscard]] int current_device();
void set_current_device(int device);
[[nodiscard]] int device_count();
[[nodiscard]] size_t memory_bytes();

[[nodiscard]] uint32_t stream_capacity();
[[nodiscard]] Delays delays();

void count(uint64_t Counters::*counter);

}  // namespace cuda_stand_in
