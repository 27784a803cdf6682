// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/model_rank.hpp"
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/training_state.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <string>

namespace vocabpipe {

/// Writes weights and optimizer state of all ranks as whole logical tensors, every rank its rows,
/// into ROOT/step-NNNNNNNN. `folder` is ROOT's, on one rank, and null on the others, which must see
/// the same files. Of `state`, `files` is filled in. Returns the bytes of the step. Between steps;
/// collective, errors are agreed on.
uint64_t save_checkpoint(Communicator& communicator, const std::string& root, SaveFolder* folder,
                         ModelRank& model, TrainingState state);

}  // namespace vocabpipe
