// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/schedule.hpp"
#include "vocabpipe/simulate.hpp"

#include <string>
#include <vector>

namespace vocabpipe::tool {

/// Programs and what became of them in simulated time.
struct SimulatedPrograms {
    std::vector<Program> programs;
    Simulation simulation;
    int receive_ahead = 1;  ///< LowerOptions::receive_ahead of the programs
    int pieces = 1;         ///< LowerOptions::pieces of the programs

    /// What titles say of the pieces; "" of whole boundaries.
    [[nodiscard]] std::string remark() const;
};

/// Lowers and simulates. `receive_ahead` and `tile_pieces` as typed after these flags; UsageError.
[[nodiscard]] SimulatedPrograms simulate_programs(const Schedule& schedule, const StepSizes& sizes,
                                                  const TableCosts& costs,
                                                  const SimulateOptions& options,
                                                  const std::string& receive_ahead,
                                                  const std::string& tile_pieces);

}  // namespace vocabpipe::tool
