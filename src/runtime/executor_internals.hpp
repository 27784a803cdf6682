// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/executor.hpp"

namespace vocabpipe {

/// What the library's own measurements need of an Executor, in types that are not installed.
struct ExecutorInternals {
    /// What moves the device's memory between the ranks; not within a step.
    [[nodiscard]] static Transport& transport(Executor& executor);
};

}  // namespace vocabpipe
