// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/batch_loader.hpp"
#include "src/train/plan/training_plan.hpp"
#include "src/train/verify/reference_run.hpp"
#include "vocabpipe/learning_rate.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <string>

namespace vocabpipe {

/// Takes the first steps of a run (TrainOptions::verify_steps) twice, on the mesh of `plan` and on
/// rank 0 alone, from the same weights and samples. Where rank 0 has no room for both, a pipeline
/// on the first 2, 4, ... ranks takes its place, whose bits are those of one rank. After each step
/// it compares loss and gradient norm, the gradient of every tensor, and the weights that every
/// rank holds: to the bit where docs/numerics.md promises that, elsewhere within rounding_bounds().
///
/// `batches`: of this rank of the mesh. Everything that it allocates is gone when it returns.
/// Returns a line about what was found, on rank 0. Throws AgreedError (ExitCode::wrong_values)
/// naming the first step, tensor and rank that differ, and OutOfMemoryError as one if no pipeline
/// has room. Collective.
[[nodiscard]] std::string verify_against_one_rank(Communicator& communicator, Device& device,
                                                  const TrainingPlan& plan, const RunInputs& inputs,
                                                  BatchLoader& batches,
                                                  const LearningRateSchedule& learning_rate);

}  // namespace vocabpipe
