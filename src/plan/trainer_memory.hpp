// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/model_layer.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/plan.hpp"

#include <vector>

namespace vocabpipe {

/// Changes what a stage of these layers needs in this library's runs into what it needs with the
/// planned trainer: without sequence parallelism rows of the residual stream are whole, scores may
/// be in memory, and a full R may make a few layers at a time.
void add_trainer_bytes(StageBytes& stage, const PlannedTrainer& trainer, const Candidate& candidate,
                       const ModelConfig& config, const std::vector<const ModelLayer*>& layers);

}  // namespace vocabpipe
