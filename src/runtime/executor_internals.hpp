// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/executor.hpp"

#include <functional>

namespace vocabpipe {

class StepMemory;

/// Called when an action has completed, before any that depends on it starts. `action` is one of
/// the program's.
using ActionObserver =
    std::function<void(const Program& program, const Action& action, const StepMemory& memory)>;

/// Access to an Executor for the library's own measurements, in types that are not installed.
struct ExecutorInternals {
    /// The transport for the device's memory. Not for use within a step.
    [[nodiscard]] static Transport& transport(Executor& executor);
    /// `observer` sees the actions of the steps from now on; empty: none does. Throws UsageError on
    /// a device with streams, where an action has not run when it is enqueued.
    static void observe(Executor& executor, ActionObserver observer);
};

}  // namespace vocabpipe
