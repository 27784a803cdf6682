// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/schedule.hpp"

#include <vector>

namespace vocabpipe {

/// Which parts of a model have a parameter that is trained; the others are frozen.
struct TrainedParts {
    std::vector<bool> stages;  ///< [global stage]
    bool embedding = true;     ///< of the tokens; learned positions belong to the first stage
    /// The first stage whose backward is needed: something at or before its input is trained, or it
    /// has routers, whose loads its backward counts. The last stage where only the output layer is
    /// trained, so that a step has a backward at all.
    int first_backward = 0;
};

/// The schedule without what only frozen parameters need: W of stages without a trained parameter
/// (their I becomes B, which then makes the input gradient only), backwards and R of the stages
/// before TrainedParts::first_backward, and G of a frozen embedding. Nothing else moves. T stays,
/// even where it has nothing left to make. A schedule without backwards stays as it is.
[[nodiscard]] Schedule without_frozen_passes(Schedule schedule, const TrainedParts& trained);

}  // namespace vocabpipe
