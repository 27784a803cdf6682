// SPDX-License-Identifier: Apache-2.0
#include "src/tool/schedule/simulated_programs.hpp"

#include "vocabpipe/receive_early.hpp"
#include "vocabpipe/step_pieces.hpp"

#include <utility>

namespace vocabpipe::tool {

std::string SimulatedPrograms::remark() const {
    return pieces > 1 ? ", boundaries by " + std::to_string(pieces) + " pieces" : "";
}

SimulatedPrograms simulate_programs(const Schedule& schedule, const StepSizes& sizes,
                                    const TableCosts& costs, const SimulateOptions& options,
                                    const std::string& receive_ahead,
                                    const std::string& tile_pieces) {
    LowerOptions lowering{.receive_ahead = receive_ahead_from(receive_ahead),
                          .pieces = tile_pieces_from(tile_pieces),
                          .overlap_pairs = costs.exchange_permille > 0};
    // If messages take no time, pieces gain nothing.
    if (lowering.pieces == 0 && costs.bytes_per_ns == 0) lowering.pieces = 1;
    EarlyReceives made = lower_step(schedule, sizes, costs, lowering, options);
    SimulatedPrograms result{.programs = std::move(made.lowered).all(),
                             .receive_ahead = made.receive_ahead,
                             .pieces = made.pieces};
    result.simulation = simulate(result.programs, costs, options);
    return result;
}

}  // namespace vocabpipe::tool
