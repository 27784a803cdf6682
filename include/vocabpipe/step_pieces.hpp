// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/overlap_table.hpp"
#include "vocabpipe/receive_early.hpp"
#include "vocabpipe/simulate.hpp"

#include <string_view>

namespace vocabpipe {

/// What --tile-pieces says: pieces, or 0 for auto, which is choose_step_pieces(). Throws UsageError
/// for anything but "auto" and whole numbers from 1 to kMostPieces.
[[nodiscard]] int tile_pieces_from(std::string_view text);

/// LowerOptions::pieces of the shortest step under `costs`: 1, 2, 4, 8 or 16. More pieces are taken
/// only where they make the step shorter by a hundredth, which is what measured costs are worth,
/// and only where a boundary takes more than two hundredths of a stage's F: on fast links pieces
/// still let the next stage begin earlier, but programs stay as they are unless asked for. A
/// pure function, so ranks that give it the same costs choose alike. LowerOptions::pieces is not
/// read. Throws as lower_world().
[[nodiscard]] int choose_step_pieces(const Schedule& schedule, const StepSizes& sizes,
                                     const CostModel& costs, const LowerOptions& options = {},
                                     const SimulateOptions& simulation = {});

/// The programs by so many pieces, which choosing has made already.
[[nodiscard]] EarlyReceives lower_by_fastest_pieces(const Schedule& schedule,
                                                    const StepSizes& sizes, const CostModel& costs,
                                                    const LowerOptions& options = {},
                                                    const SimulateOptions& simulation = {});

/// TableCosts::piece_ns by an overlap table. It measured products of a weight that all members
/// share, so a whole weight costs as many times more.
[[nodiscard]] int64_t piece_price(const OverlapTable& table);

/// Costs to choose pieces by where only a table was measured: passes that were priced at
/// `flops_per_ns` take what they take at the table's rate, messages what they take on its link.
[[nodiscard]] TableCosts costs_at_rates(TableCosts costs, double flops_per_ns,
                                        const OverlapTable& table);

}  // namespace vocabpipe
