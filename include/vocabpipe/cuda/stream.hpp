// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"

#include <cuda_runtime.h>

namespace vocabpipe {

/// The stream on which a module's own kernels of a pass must be launched. Throws UsageError where
/// the rank's device is the host.
[[nodiscard]] cudaStream_t cuda_stream(Context& ctx);

}  // namespace vocabpipe
