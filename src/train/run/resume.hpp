// SPDX-License-Identifier: Apache-2.0
// Going on from what --load names.
#pragma once

#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/options/train_options.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace vocabpipe {

/// "--flag value" of all that decides the bits of a run but its data, and "ranks P", "replicas D".
[[nodiscard]] std::vector<std::string> bit_flags(const TrainOptions& options, Mesh mesh);

/// The run goes on in the folder that it saves to: one command line for a job that is started
/// again and again.
[[nodiscard]] bool goes_on_where_it_saves(const TrainOptions& options);
/// Such a run that trains: it would be started again and again on a damaged step.
[[nodiscard]] bool passes_over_damage(const TrainOptions& options);

/// A step that the run goes past, and what is wrong with it.
struct DamagedStep {
    int64_t step = 0;
    std::string what;
};

struct OpenedCheckpoint {
    std::unique_ptr<const Checkpoint> checkpoint;
    std::vector<DamagedStep> damaged;  ///< later ones, from the newest
};

/// Opened, verified, and of the model and the data order of this run. Errors are agreed on, and so
/// are damaged steps. Collective.
[[nodiscard]] OpenedCheckpoint open_checkpoint(Communicator& communicator,
                                               const TrainOptions& options);

/// Says which steps of `root` the run goes past, why, and what becomes of them.
void print_damaged(const std::vector<DamagedStep>& damaged, const std::string& root);

/// Where a saved step records the subset of its run (--data-subset), if it has one.
inline constexpr const char* kSubsetRecord = "data-subset";
/// Throws InputFileError if a run that goes on from the step would read other samples than the one
/// that saved it: `ours` is RunData::subset().
void check_same_subset(const Checkpoint& checkpoint, const std::string& ours);

/// Says what was loaded, and which of the run's flags are not those of the run that saved it.
void print_checkpoint(const Checkpoint& checkpoint, const std::vector<std::string>& flags);

}  // namespace vocabpipe
