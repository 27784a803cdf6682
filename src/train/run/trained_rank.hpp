// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/run/training_plan.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/optimizer_step.hpp"
#include "vocabpipe/world.hpp"

#include <memory>

namespace vocabpipe {

/// What one rank of a run holds: its part of the model (initialised, unless weights are loaded),
/// the optimizer and the executor over both. The device must outlive it.
struct TrainedRank {
    std::unique_ptr<ModelRank> model;
    std::unique_ptr<OptimizerStep> optimizer;
    std::unique_ptr<Executor> executor;
};

/// The device of this rank as the options say, and in `placements` what all ranks' say of
/// themselves. Errors are agreed on. Collective.
[[nodiscard]] std::unique_ptr<Device> open_device(Communicator& communicator,
                                                  const TrainOptions& options,
                                                  std::vector<RankPlacement>& placements);

/// Loads the plan's programs, each into the slot that the plan has for it. Collective.
void load_steps(Executor& executor, const TrainingPlan& plan);

/// Loaded with the plan's programs. Options, plan and device must outlive it. Memory that is
/// missing is agreed on, with what every rank's plan needs. Collective.
[[nodiscard]] TrainedRank allocate_rank(Communicator& communicator, const TrainOptions& options,
                                        const TrainingPlan& plan, Device& device);

}  // namespace vocabpipe
