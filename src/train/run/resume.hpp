// SPDX-License-Identifier: Apache-2.0
// Resuming from what --load names.
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

/// "--flag value" of all flags but the data's that decide the bits of a run, and "ranks P",
/// "replicas D".
[[nodiscard]] std::vector<std::string> bit_flags(const TrainOptions& options, Mesh mesh);

/// Whether the run loads from the folder that it saves to: one command line for a job that is
/// restarted again and again.
[[nodiscard]] bool goes_on_where_it_saves(const TrainOptions& options);
/// Whether the run skips damaged steps: such a run that trains, since a restart would fail on them
/// forever.
[[nodiscard]] bool passes_over_damage(const TrainOptions& options);

/// A step that the run passes over, and what is wrong with it.
struct DamagedStep {
    int64_t step = 0;
    std::string what;
};

struct OpenedCheckpoint {
    std::unique_ptr<const Checkpoint> checkpoint;
    std::vector<DamagedStep> damaged;  ///< later ones, newest first
};

/// Opens and verifies the checkpoint; it must fit the run's model and data order. Errors and
/// damaged steps are agreed on. Collective.
[[nodiscard]] OpenedCheckpoint open_checkpoint(Communicator& communicator,
                                               const TrainOptions& options);

/// Prints which steps of `root` the run passes over, why, and their new names.
void print_damaged(const std::vector<DamagedStep>& damaged, const std::string& root);

/// Key under which a saved step records the subset of its run (--data-subset), if it has one.
inline constexpr const char* kSubsetRecord = "data-subset";
/// InputFileError if a run that continues from the step would read other samples than the run that
/// saved it: `ours` is RunData::subset().
void check_same_subset(const Checkpoint& checkpoint, const std::string& ours);

/// Prints what was loaded, and which flags differ from those of the run that saved it.
void print_checkpoint(const Checkpoint& checkpoint, const std::vector<std::string>& flags);

}  // namespace vocabpipe
