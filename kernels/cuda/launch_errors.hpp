// SPDX-License-Identifier: Apache-2.0
// Finds the operator, kernel and shape that an error of the GPU belongs to. Errors arrive with a
// later call, unless VOCABPIPE_SYNCHRONOUS=1 makes every launch wait for its end.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "kernels/cuda/call_site.hpp"
#include "kernels/cuda/engine.hpp"

namespace vocabpipe::kernels::cuda {

/// The kernel that is launched next.
class KernelLaunch {
public:
    KernelLaunch(const CallSite& at, const void* kernel, dim3 grid, dim3 block)
        : at_(at), kernel_(kernel), grid_(grid), block_(block) {
        // Now, because a lost context no longer knows names.
        if (at.cuda().synchronous()) find_name();
    }
    /// Throws DeviceError if the launch, whose result this is, failed. Where the engine is
    /// synchronous the kernel has run on return, and its failure throws, too.
    void check(cudaError_t launched) const {
        if (launched != cudaSuccess || at_.cuda().synchronous()) check_closely(launched);
    }

private:
    void find_name();
    void check_closely(cudaError_t launched) const;
    [[nodiscard]] std::string text() const;

    const CallSite& at_;
    const void* kernel_;
    dim3 grid_, block_;
    std::string name_;
};

/// Throws DeviceError, naming operator and `what`, if the last enqueued work fails.
void await_call(const CallSite& at, const std::string& what);

/// The same for calls of libraries where the engine is synchronous; otherwise does nothing, and
/// does not call `what()`.
template <typename What>
void check_call(const CallSite& at, const What& what) {
    if (at.cuda().synchronous()) await_call(at, what());
}

}  // namespace vocabpipe::kernels::cuda
