// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/plan/training_plan.hpp"

#include <cstdint>

namespace vocabpipe {

/// How far a run on a mesh may be from the same run on one rank. docs/verification.md derives the
/// bounds.
struct RoundingBounds {
    /// Losses, gradients and weights have the same bits; the bounds are 0.
    bool to_the_bit = false;
    /// Relative error of the first step's gradients, as a vector.
    double relative = 0;
    /// Relative error of a weight that is rounded to the run's type: half a unit in the last
    /// place.
    double weight_rounding = 0;

    /// Bound of the loss, or of the gradient norm, in the n-th step from 1: later steps begin with
    /// weights that already differ.
    [[nodiscard]] double of_scalar(double expected, int64_t n) const;
    /// Bound of the Euclidean distance of two gradients of a tensor. `norm`: of that tensor's
    /// expected gradient; `all`: of the gradient of all `tensors` together.
    [[nodiscard]] double of_gradient(double norm, double all, int64_t tensors, int64_t n) const;
    /// Bound of the distance of `elements` weights. `gradient`: of_gradient() relative to the
    /// tensor's norm, infinite for a norm of 0; `moved`: the sum of the learning rates of all steps
    /// so far; `weights`: Euclidean norm of these weights.
    [[nodiscard]] double of_weights(int64_t elements, double gradient, double moved,
                                    double weights) const;
};

/// The bounds of a run with this plan.
[[nodiscard]] RoundingBounds rounding_bounds(const TrainingPlan& plan);

}  // namespace vocabpipe
