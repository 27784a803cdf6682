// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/gpt.hpp"
#include "src/train/optimizer_step.hpp"
#include "src/train/training_plan.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/world.hpp"

#include <memory>

namespace vocabpipe {

/// What one rank of a run holds: its part of the model, initialised, the optimizer and the executor
/// over both.
struct TrainedRank {
    std::unique_ptr<Device> device;
    std::unique_ptr<GptRank> model;
    std::unique_ptr<OptimizerStep> optimizer;
    std::unique_ptr<Executor> executor;
};

/// Options and plan must outlive it.
[[nodiscard]] TrainedRank allocate_rank(Communicator& communicator, const TrainOptions& options,
                                        const TrainingPlan& plan);

}  // namespace vocabpipe
