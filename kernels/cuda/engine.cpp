// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/engine.hpp"

#include <cstdlib>
#include <string_view>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/engine_state.hpp"

namespace vocabpipe::kernels::cuda {

Engine::State::State() {
    if (cublasLtCreate(&blas) != CUBLAS_STATUS_SUCCESS) {
        throw DeviceError(
            "cublasLtCreate failed: the driver does not work or the GPU has too little memory");
    }
}

Engine::State::~State() {
    (void)cublasLtDestroy(blas);
}

Engine::Engine(int device) {
    check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device),
          "cudaDeviceGetAttribute");
    int major = 0, minor = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
          "cudaDeviceGetAttribute");
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
          "cudaDeviceGetAttribute");
    compute_capability_ = 10 * major + minor;
    const char* const synchronous = std::getenv("VOCABPIPE_SYNCHRONOUS");
    synchronous_ = synchronous != nullptr && std::string_view(synchronous) == "1";
    state_ = std::make_unique<State>();
}

Engine::~Engine() = default;

}  // namespace vocabpipe::kernels::cuda
