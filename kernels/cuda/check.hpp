// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <string>

#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::cuda {

/// Whether a kernel has failed and the context is lost: every later call returns the same error.
[[nodiscard]] inline bool is_sticky(cudaError_t status) {
    switch (status) {
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchTimeout:
        case cudaErrorAssert:
        case cudaErrorHardwareStackError:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorLaunchFailure:
            return true;
        default:
            return false;
    }
}

/// Text such as "cudaErrorIllegalAddress: an illegal memory access was encountered".
[[nodiscard]] inline std::string error_text(cudaError_t status) {
    return std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
}

/// Throws DeviceError, naming the call, unless it succeeded. An error that sticks comes from a
/// kernel that was launched before; only a synchronous engine knows which one.
inline void check(cudaError_t status, const char* call) {
    if (status == cudaSuccess) return;
    throw DeviceError(std::string(call) + ": " + error_text(status) +
                      (is_sticky(status) ? "; VOCABPIPE_SYNCHRONOUS=1 names the kernel" : ""));
}

/// When this returns or throws, everything enqueued on the stream has run: host memory that it
/// reads or writes may be freed. A call that fails may report an earlier error without having
/// waited, so a second one waits. In a lost context nothing runs, and the second call fails at
/// once.
inline void synchronize(cudaStream_t stream) {
    const cudaError_t status = cudaStreamSynchronize(stream);
    if (status == cudaSuccess) return;
    (void)cudaStreamSynchronize(stream);
    check(status, "cudaStreamSynchronize");
}

/// Whether the event or stream that cudaEventQuery or cudaStreamQuery was called for has finished.
/// "Not yet" becomes the thread's last error as well, which others would report as theirs (CUB
/// reads it after each launch), so it is cleared. Throws as check() does.
inline bool has_ended(cudaError_t status, const char* call) {
    if (status == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return false;
    }
    check(status, call);
    return true;
}

}  // namespace vocabpipe::kernels::cuda
