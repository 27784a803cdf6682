// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/trained_rank.hpp"

#include <string>

namespace vocabpipe {

/// Writes weights and optimizer state of all ranks into FOLDER/step-NNNNNNNN, in the files that
/// train_gpt writes: any number of ranks, any schedule and train_gpt itself can go on from them,
/// and transformers can load them. The step, that of rank.position(), appears complete or not at
/// all. Collective, between steps, returns when it is durable; all ranks must see the same files.
/// Throws UsageError if a step that is not before this one is there, OutputFileError; on all ranks
/// alike.
void save_step(TrainedRank& rank, const std::string& folder);

/// Fills weights, optimizer state and position from the newest complete step in `folder`, whose
/// checksums it compares. False, and the rank stays as it is, if there is no step yet. Collective,
/// between steps. Throws InputFileError for damaged files, or those of another model or sequence
/// length; on all ranks alike.
bool load_step(TrainedRank& rank, const std::string& folder);

}  // namespace vocabpipe
