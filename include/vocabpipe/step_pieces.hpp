// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/overlap_table.hpp"
#include "vocabpipe/receive_early.hpp"
#include "vocabpipe/simulate.hpp"

#include <string_view>

namespace vocabpipe {

/// Parses --tile-pieces: pieces, or 0 for "auto" (choose_step_pieces()). Throws UsageError for
/// anything but "auto" and whole numbers from 1 to kMostPieces.
[[nodiscard]] int tile_pieces_from(std::string_view text);

/// LowerOptions::pieces of the shortest step under `costs`: 1, 2, 4, 8 or 16. More pieces are taken
/// only if they shorten the step by a hundredth, the precision of measured costs, and only if a
/// boundary takes more than two hundredths of a stage's F: on faster links pieces would still let
/// the next stage begin earlier, but must be asked for. A pure function, so ranks with the same
/// costs choose alike. LowerOptions::pieces is not read. Throws as lower_world().
[[nodiscard]] int choose_step_pieces(const Schedule& schedule, const StepSizes& sizes,
                                     const CostModel& costs, const LowerOptions& options = {},
                                     const SimulateOptions& simulation = {});

/// The programs with choose_step_pieces() pieces, which the choice has already made.
[[nodiscard]] EarlyReceives lower_by_fastest_pieces(const Schedule& schedule,
                                                    const StepSizes& sizes, const CostModel& costs,
                                                    const LowerOptions& options = {},
                                                    const SimulateOptions& simulation = {});

/// TableCosts::piece_ns from an overlap table. The table measures products with one member's part
/// of a weight; a whole weight costs `members` times as much.
[[nodiscard]] int64_t piece_price(const OverlapTable& table);

/// Costs for the choice of pieces when only a table was measured: scales passes priced at
/// `flops_per_ns` to the table's rate, and prices messages by its link.
[[nodiscard]] TableCosts costs_at_rates(TableCosts costs, double flops_per_ns,
                                        const OverlapTable& table);

}  // namespace vocabpipe
