// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/options/train_options.hpp"
#include "vocabpipe/learning_rate.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/world.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

/// The learning-rate schedule of the flags. UsageError if they contradict each other or the length
/// of the run.
[[nodiscard]] LearningRateSchedule learning_rate_schedule(const TrainOptions& options);

/// Pipelines of --pipeline-model-parallel-size ranks, by default one of all ranks. UsageError if
/// the ranks do not divide.
[[nodiscard]] Mesh mesh_of(const TrainOptions& options, int ranks);

/// Whether a run computes a validation loss, i.e. has data for it.
[[nodiscard]] bool validates(const TrainOptions& options);
/// Whether a run evaluates anything.
[[nodiscard]] bool evaluates(const TrainOptions& options);

/// UsageError with flag, value and limit for all that the options alone show.
void check_options(const TrainOptions& options, int ranks);
/// The part of it that keeps products of sizes within 64 bits; call it before computing with them.
void check_sizes(const ModelConfig& model);

/// The flags that must be the same on every rank, as "--flag value".
[[nodiscard]] std::vector<std::string> shared_flags(const TrainOptions& options);
/// The ones among them that decide the bits of a run.
[[nodiscard]] std::vector<std::string> bit_flags(const TrainOptions& options);

/// AgreedError on every rank, with the first flag that differs, if mpirun started ranks with
/// different flags. Paths may differ from host to host. Collective.
void check_same_options(Communicator& communicator, const TrainOptions& options);

}  // namespace vocabpipe
