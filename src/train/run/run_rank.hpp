// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/run/training_plan.hpp"
#include "vocabpipe/trained_rank.hpp"
#include "vocabpipe/world.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace vocabpipe {

/// The device of this rank as the options say, and in `placements` what all ranks' say of
/// themselves. Errors are agreed on. Collective.
[[nodiscard]] std::unique_ptr<Device> open_device(Communicator& communicator,
                                                  const TrainOptions& options,
                                                  std::vector<RankPlacement>& placements);

/// The rank of a run, with the plan's steps; initialised unless weights are to be loaded. Memory
/// that is missing is agreed on, with what every rank's plan needs. `abandon`: as in
/// ExecutorOptions. Collective.
[[nodiscard]] std::unique_ptr<TrainedRank> allocate_rank(Communicator& communicator,
                                                         const TrainOptions& options,
                                                         const TrainingPlan& plan, Device& device,
                                                         std::function<bool()> abandon = {});

}  // namespace vocabpipe
