// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/lower/step_graph.hpp"

namespace vocabpipe::lowering {

/// Marks the passes of the pairs that run on two lanes (LowerOptions::overlap_pairs).
void mark_overlapped_pairs(StepGraph& step);

}  // namespace vocabpipe::lowering
