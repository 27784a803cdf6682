// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

/// Contexts that a failing kernel has made unusable (control.hpp, fail_kernel()).
namespace cuda_stand_in {

/// What every call on the device returns.
[[nodiscard]] cudaError_t context_error(int device);

/// Whether a test waits for a kernel that is to fail: only then its name matters.
[[nodiscard]] bool awaits_failing_kernel();

/// To be asked by work that is about to run: true, and the device's context is lost, if the work is
/// what a test wants to fail. It must then do nothing.
[[nodiscard]] bool fails(int device, std::string_view kernel);

}  // namespace cuda_stand_in
