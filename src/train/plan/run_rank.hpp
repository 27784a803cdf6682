// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/plan/training_plan.hpp"
#include "vocabpipe/trained_rank.hpp"
#include "vocabpipe/world.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace vocabpipe {

/// Opens the device that the options name, and adds all ranks' devices to `placements`. Errors are
/// agreed on. Collective.
[[nodiscard]] std::unique_ptr<Device> open_device(Communicator& communicator,
                                                  const TrainOptions& options,
                                                  std::vector<RankPlacement>& placements);

/// Allocates the rank with the plan's steps, and initialises its weights unless they will be
/// loaded. If memory is missing, the agreed error says what every rank's plan needs. `abandon`: as
/// in ExecutorOptions. Collective.
[[nodiscard]] std::unique_ptr<TrainedRank> allocate_rank(Communicator& communicator,
                                                         const TrainOptions& options,
                                                         const TrainingPlan& plan, Device& device,
                                                         std::function<bool()> abandon = {});

}  // namespace vocabpipe
