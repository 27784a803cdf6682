// SPDX-License-Identifier: Apache-2.0
// Going on from what --load names.
#pragma once

#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/options/train_options.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/world.hpp"

#include <memory>
#include <string>
#include <vector>

namespace vocabpipe {

/// "--flag value" of all that decides the bits of a run but its data, and "ranks P", "replicas D".
[[nodiscard]] std::vector<std::string> bit_flags(const TrainOptions& options, Mesh mesh);

/// Opened, verified, and of the model and the data order of this run. Errors are agreed on.
/// Collective.
[[nodiscard]] std::unique_ptr<const Checkpoint> open_checkpoint(Communicator& communicator,
                                                                const TrainOptions& options);

/// Where a saved step records the subset of its run (--data-subset), if it has one.
inline constexpr const char* kSubsetRecord = "data-subset";
/// Throws InputFileError if a run that goes on from the step would read other samples than the one
/// that saved it: `ours` is RunData::subset().
void check_same_subset(const Checkpoint& checkpoint, const std::string& ours);

/// Says what was loaded, and which of the run's flags are not those of the run that saved it.
void print_checkpoint(const Checkpoint& checkpoint, const std::vector<std::string>& flags);

}  // namespace vocabpipe
