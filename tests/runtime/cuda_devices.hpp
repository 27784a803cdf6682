// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cuda/device.hpp"

#ifdef VOCABPIPE_ON_STAND_IN
#include "tests/support/cuda_stand_in/control.hpp"
#endif

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

namespace vocabpipe::testing {

/// Ranks that NCCL takes here: one per GPU, or two where the user lets ranks share it (NCCL 2.30;
/// more than two may exhaust a GPU and hang, says its documentation). The stand-in has as many GPUs
/// as it is told.
inline int gpus_for_nccl() {
#ifdef VOCABPIPE_ON_STAND_IN
    cuda_stand_in::set_device_count(4);
#endif
    prepare_cuda(/*nccl_joins_ranks=*/true);
    const char* shared = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return cuda_device_count() * (shared != nullptr && std::string(shared) == "1" ? 2 : 1);
}

/// The GPU of a rank in NCCL's world of threads.
inline int gpu_of(int rank) {
    return rank % std::max(cuda_device_count(), 1);
}

/// Empty if tests can run.
inline std::string why_no_cuda() {
    return gpus_for_nccl() > 0 ? "" : "no GPU: cudaGetDeviceCount finds none";
}

/// Skipped, with the reason, where tests cannot run.
template <typename Parameter>
class CudaTestWithParam : public ::testing::TestWithParam<Parameter> {
protected:
    void SetUp() override {
        if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
    }
};

/// A rank's device, for PipelineOptions: with NCCL each has its own GPU if there are enough, else
/// all share one.
inline std::function<std::unique_ptr<Device>(int rank)> devices(CudaTransport transport) {
    return [transport](int rank) {
        return make_cuda_device({.ordinal = transport == CudaTransport::nccl ? gpu_of(rank) : 0,
                                 .transport = transport});
    };
}

/// For a single rank that is to have the bits of `ranks` ranks with this transport.
inline std::unique_ptr<Device> single_rank_device(CudaTransport transport, int ranks) {
    const bool shares = transport == CudaTransport::nccl && ranks > 1;
    return make_cuda_device({.left_multiprocessors = shares ? nccl_multiprocessors() : 0});
}

}  // namespace vocabpipe::testing
