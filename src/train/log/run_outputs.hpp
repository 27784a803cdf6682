// SPDX-License-Identifier: Apache-2.0
// What a run writes besides its steps.
#pragma once

#include "src/train/options/train_options.hpp"
#include "vocabpipe/mesh.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

// Of the names of the traces in --trace-dir: the step that was measured, and what was simulated.
inline constexpr const char* kExecutedTrace = ".json";
inline constexpr const char* kSimulatedTrace = ".simulated.json";

/// Of the traces in --trace-dir, without the ends of their names.
[[nodiscard]] std::string trace_path(const TrainOptions& options, const Mesh& mesh);

/// UsageError if an output flag would replace one of the `inputs`, or a file that the same flag has
/// not written. `trace_path`: of the traces, without the ends of their names.
void check_outputs(const TrainOptions& options, std::vector<std::string> inputs,
                   const std::string& trace_path);

/// Makes sure that what is written after the last step can be: rather now than then. Throws
/// OutputFileError.
void probe_outputs(const TrainOptions& options, const std::string& trace_path);

}  // namespace vocabpipe
