// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/program.hpp"
#include "vocabpipe/timeline.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

struct Simulation {
    Timeline timeline;
    TimelineSummary summary;
    std::vector<uint64_t> peak_bytes;  ///< [rank] largest sum of buffers alive in simulated time
};

/// Runs the programs in simulated, integer time under the executor's rules: a compute action starts
/// when its lane is free and its edges are done; a communication starts when all participants have
/// reached it in their lanes. Throws UsageError if the programs get stuck.
[[nodiscard]] Simulation simulate(const std::vector<Program>& programs, const CostModel& costs);

}  // namespace vocabpipe
