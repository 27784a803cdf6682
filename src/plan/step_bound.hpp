// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/step_model.hpp"
#include "vocabpipe/plan.hpp"

#include <cstdint>

namespace vocabpipe {

/// What no order of a candidate's passes can beat, from sums of its costs: no order is made.
struct StepBound {
    int64_t step_ns = 0;  ///< of a step by pass times
    /// The same of a step that fits into memory: activations that live long enough for their
    /// backward need a step long enough for all of them to fit one after the other.
    int64_t fitting_step_ns = 0;
    int64_t memory_bytes = 0;  ///< of the rank that needs most, reserve included
};

/// `memory`: bytes of a GPU. Proven: with time_passes() and list_memory(), the candidate's step is
/// never shorter than step_ns and never needs less than memory_bytes, and where it needs at most
/// `memory` it is never shorter than fitting_step_ns (docs/planning.md, "Searching").
[[nodiscard]] StepBound bound_step(const StepModel& step, const Candidate& candidate,
                                   int64_t memory);

}  // namespace vocabpipe
