// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/trained_rank.hpp"

#include <string>

namespace vocabpipe {

/// Writes weights and optimizer state of all ranks into FOLDER/step-NNNNNNNN, in the files that
/// train_gpt writes: any number of ranks, any schedule and train_gpt itself can resume from them,
/// and transformers can load them. The folder is named after the step of rank.position(), and
/// appears complete or not at all. Collective, between steps; returns when the files are durable;
/// all ranks must see the same files. Throws, on all ranks alike, UsageError if the folder already
/// holds this step or a later one, and OutputFileError.
void save_step(TrainedRank& rank, const std::string& folder);

/// Fills weights, optimizer state and position from the newest complete step in `folder`, whose
/// checksums it compares. Returns false and changes nothing if there is no step yet. Collective,
/// between steps. Throws InputFileError, on all ranks alike, for damaged files and for files of
/// another model or sequence length.
bool load_step(TrainedRank& rank, const std::string& folder);

}  // namespace vocabpipe
