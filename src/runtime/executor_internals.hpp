// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/executor.hpp"

namespace vocabpipe {

/// Access to an Executor for the library's own measurements, in types that are not installed.
struct ExecutorInternals {
    /// The transport for the device's memory. Not for use within a step.
    [[nodiscard]] static Transport& transport(Executor& executor);
};

}  // namespace vocabpipe
