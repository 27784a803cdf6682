// SPDX-License-Identifier: Apache-2.0
// The files that a run writes besides its steps.
#pragma once

#include "src/train/options/train_options.hpp"
#include "vocabpipe/mesh.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

// Suffixes of the traces in --trace-dir: the measured step, and the simulated one.
inline constexpr const char* kExecutedTrace = ".json";
inline constexpr const char* kSimulatedTrace = ".simulated.json";

/// Path of the traces in --trace-dir, without suffix.
[[nodiscard]] std::string trace_path(const TrainOptions& options, const Mesh& mesh);

/// UsageError if an output flag would replace one of the `inputs`, or a file that no earlier run
/// wrote with that flag. `trace_path`: from trace_path().
void check_outputs(const TrainOptions& options, std::vector<std::string> inputs,
                   const std::string& trace_path);

/// Opens the outputs that are written after the last step, so that a bad path fails early. Throws
/// OutputFileError.
void probe_outputs(const TrainOptions& options, const std::string& trace_path);

}  // namespace vocabpipe
