// SPDX-License-Identifier: Apache-2.0
// Second half of lowering, part three: the global order, projected on each rank of the pipeline.
#pragma once

#include "src/schedule/lower/dataflow.hpp"
#include "src/schedule/lower/ordering.hpp"
#include "vocabpipe/lowered.hpp"

#include <vector>

namespace vocabpipe::lowering {

/// Passes, actions in the global order, planned buffers and edges of every pipeline rank. Groups
/// and reductions are not copied yet: actions and blocks refer to those of the dataflow, by numbers
/// that are equal on every rank. `stage_teams`: as in Lowered.
[[nodiscard]] Lowered project(const Dataflow& flow, const std::vector<Place>& places, Mesh mesh,
                              std::vector<Axis> stage_teams);

/// Gives every program the groups and reductions that it uses, and no others, in the order of their
/// numbers. The first three reductions have names and keep their numbers.
void take_own(Lowered& world, const Dataflow& flow);

}  // namespace vocabpipe::lowering
