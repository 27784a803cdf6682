// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace vocabpipe {

/// Where a training is, beside its weights and moments.
struct TrainingPosition {
    int64_t step = 0;              ///< the last one that was taken
    int64_t consumed_samples = 0;  ///< sequences, from which the data go on
    uint64_t seed = 0;             ///< which orders them
};

/// Writes weights and optimizer state of all ranks into FOLDER/step-NNNNNNNN, in the files that
/// train_gpt writes: any number of ranks, any schedule and train_gpt itself can go on from them,
/// and transformers can load them. The step appears complete or not at all. Collective, between
/// steps, returns when it is durable; all ranks must see the same files. Throws UsageError if a
/// step that is not before this one is there, OutputFileError; on all ranks alike.
void save_step(Communicator& communicator, ModelRank& model, const std::string& folder,
               const TrainingPosition& position);

/// Fills weights and optimizer state from the newest complete step in `folder`, whose checksums it
/// compares, and says where it was; nothing, and the model stays as it is, if there is no step yet.
/// `ctx`: Executor::context(). Collective, between steps. Throws InputFileError for damaged files,
/// or those of another model or sequence length; on all ranks alike.
[[nodiscard]] std::optional<TrainingPosition> load_step(Communicator& communicator,
                                                        ModelRank& model, Context& ctx,
                                                        const std::string& folder);

}  // namespace vocabpipe
