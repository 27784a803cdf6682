// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/flag.hpp"
#include "vocabpipe/planned_trainer.hpp"

namespace vocabpipe::tool {

/// Flags of plan for the trainer that is planned for, with Megatron's names where it has them.
[[nodiscard]] FlagGroup trainer_flags(PlannedTrainer& trainer);

}  // namespace vocabpipe::tool
