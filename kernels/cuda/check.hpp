// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <string>

#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::cuda {

/// Whether a kernel has failed and its context is lost: every later call returns the same error.
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

/// "cudaErrorIllegalAddress: an illegal memory access was encountered".
[[nodiscard]] inline std::string error_text(cudaError_t status) {
    return std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
}

/// Throws DeviceError, naming the call, unless it succeeded. An error that sticks is that of a
/// kernel which was launched before; which one, only a synchronous engine knows.
inline void check(cudaError_t status, const char* call) {
    if (status == cudaSuccess) return;
    throw DeviceError(std::string(call) + ": " + error_text(status) +
                      (is_sticky(status) ? "; VOCABPIPE_SYNCHRONOUS=1 names the kernel" : ""));
}

/// Everything enqueued on the stream has run when this returns or throws: memory of the host that
/// it reads or writes may go then. A call that fails may report what went wrong before and not have
/// waited, so a second one waits. In a context that is lost nothing runs, and the second fails at
/// once.
inline void synchronize(cudaStream_t stream) {
    const cudaError_t status = cudaStreamSynchronize(stream);
    if (status == cudaSuccess) return;
    (void)cudaStreamSynchronize(stream);
    check(status, "cudaStreamSynchronize");
}

/// Of cudaEventQuery and cudaStreamQuery: whether what they ask about has ended. "Not yet" becomes
/// the thread's last error as well, which others would report as theirs (CUB looks at it after each
/// launch), so it is forgotten. Throws as check() does.
inline bool has_ended(cudaError_t status, const char* call) {
    if (status == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return false;
    }
    check(status, call);
    return true;
}

}  // namespace vocabpipe::kernels::cuda
