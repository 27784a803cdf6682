// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/options/train_options.hpp"
#include "vocabpipe/learning_rate.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/world.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

/// The schedule that the flags describe. Throws UsageError for those that contradict each other, or
/// the length of the run.
[[nodiscard]] LearningRateSchedule learning_rate_schedule(const TrainOptions& options);

/// Pipelines of --pipeline-model-parallel-size of the ranks that there are, or one of all of them.
/// UsageError where they do not come out even.
[[nodiscard]] Mesh mesh_of(const TrainOptions& options, int ranks);

/// Throws UsageError naming flag, value and limit for what can be told from the options alone.
void check_options(const TrainOptions& options, int ranks);
/// The part of it that keeps products of sizes within 64 bits, before anything follows from them.
void check_sizes(const ModelConfig& model);

/// What must be the same on every rank, one "--flag value" each.
[[nodiscard]] std::vector<std::string> shared_flags(const TrainOptions& options);
/// Those of them that decide the bits of a run.
[[nodiscard]] std::vector<std::string> bit_flags(const TrainOptions& options);

/// mpirun can start ranks with different flags, which must not train on: throws AgreedError on
/// every rank, naming the first flag that differs. Paths may differ from host to host. Collective.
void check_same_options(Communicator& communicator, const TrainOptions& options);

}  // namespace vocabpipe
