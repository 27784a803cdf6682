// SPDX-License-Identifier: Apache-2.0
// What a run writes besides its steps.
#pragma once

#include "src/train/options/train_options.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

// Of the names of the traces in --trace-dir: the step that was measured, and what was simulated.
inline constexpr const char* kExecutedTrace = ".json";
inline constexpr const char* kSimulatedTrace = ".simulated.json";

/// UsageError if an output flag would replace one of the `inputs`, or a file that the same flag has
/// not written. `trace_path`: of the traces, without the ends of their names.
void check_outputs(const TrainOptions& options, std::vector<std::string> inputs,
                   const std::string& trace_path);

}  // namespace vocabpipe
