// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/check.hpp"

namespace vocabpipe::bench {

/// Time between two points of a stream, measured by the GPU.
class DeviceTimer {
public:
    DeviceTimer() {
        kernels::cuda::check(cudaEventCreate(&begin_), "cudaEventCreate");
        kernels::cuda::check(cudaEventCreate(&end_), "cudaEventCreate");
    }
    ~DeviceTimer() {
        (void)cudaEventDestroy(begin_);
        (void)cudaEventDestroy(end_);
    }
    DeviceTimer(const DeviceTimer&) = delete;
    DeviceTimer& operator=(const DeviceTimer&) = delete;

    void start(cudaStream_t stream) {
        kernels::cuda::check(cudaEventRecord(begin_, stream), "cudaEventRecord");
    }
    void stop(cudaStream_t stream) {
        kernels::cuda::check(cudaEventRecord(end_, stream), "cudaEventRecord");
    }
    /// Waits for the second point.
    [[nodiscard]] float milliseconds() const {
        kernels::cuda::check(cudaEventSynchronize(end_), "cudaEventSynchronize");
        float ms = 0;
        kernels::cuda::check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
        return ms;
    }

private:
    cudaEvent_t begin_ = nullptr;
    cudaEvent_t end_ = nullptr;
};

}  // namespace vocabpipe::bench
