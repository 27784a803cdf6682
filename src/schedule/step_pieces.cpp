// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/step_pieces.hpp"

#include "src/support/parse_number.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/receive_early.hpp"

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

constexpr std::array<int, 4> kMorePieces{2, 4, 8, 16};
constexpr double kWorthIt = 0.99;  // of the step time with fewer pieces
constexpr double kNothing = 0.02;  // of the mean F: shorter hops are not worth hiding

bool has_nothing_to_hide(const Schedule& schedule, const StepSizes& sizes, const CostModel& costs) {
    if (schedule.ranks == 1 || sizes.tensor > 1) return true;  // tensor ranks stream no boundaries
    const auto hop = static_cast<double>(
        costs.transfer_ns(Do::send, {{0, 1}}, sizes.tokens * sizes.hidden * size_of(sizes.dtype)));
    double forward = 0;
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const auto s = static_cast<size_t>(stage);
        forward += static_cast<double>(costs.pass_ns(
            schedule.rank_of_stage[s], {.op = Op::F, .stage = static_cast<uint16_t>(stage)}));
    }
    return hop <= kNothing * forward / schedule.stages;
}

}  // namespace

int tile_pieces_from(std::string_view text) {
    if (text == "auto") return 0;
    const std::optional<int> pieces = parse_number<int>(text);
    if (!pieces || *pieces < 1 || *pieces > kMostPieces) {
        throw UsageError("--tile-pieces " + std::string(text) +
                         ": must be auto or an integer from 1 to " + std::to_string(kMostPieces));
    }
    return *pieces;
}

int choose_step_pieces(const Schedule& schedule, const StepSizes& sizes, const CostModel& costs,
                       const LowerOptions& options, const SimulateOptions& simulation) {
    if (has_nothing_to_hide(schedule, sizes, costs)) return 1;
    return lower_by_fastest_pieces(schedule, sizes, costs, options, simulation).pieces;
}

EarlyReceives lower_by_fastest_pieces(const Schedule& schedule, const StepSizes& sizes,
                                      const CostModel& costs, const LowerOptions& options,
                                      const SimulateOptions& simulation) {
    const auto lowered = [&](int pieces) {
        LowerOptions with = options;
        with.pieces = pieces;
        return lower_step(schedule, sizes, costs, with, simulation);
    };
    const auto step_ns = [&](const Lowered& world) {
        const auto timed = [&](const std::vector<Program>& programs) {
            return static_cast<double>(simulate(programs, costs, simulation).summary.step_ns);
        };
        return world.mesh.slices() == 1 ? timed(world.pipeline) : timed(world.all());
    };
    EarlyReceives best = lowered(1);
    if (has_nothing_to_hide(schedule, sizes, costs)) return best;
    double best_ns = step_ns(best.lowered);
    for (const int pieces : kMorePieces) {
        EarlyReceives other = lowered(pieces);
        const double ns = step_ns(other.lowered);
        if (ns > kWorthIt * best_ns) continue;
        best = std::move(other);
        best_ns = ns;
    }
    return best;
}

int64_t piece_price(const OverlapTable& table) {
    return table.rates.piece_ns * table.members;
}

TableCosts costs_at_rates(TableCosts costs, double flops_per_ns, const OverlapTable& table) {
    for (auto* const rows : {&costs.stage_ns, &costs.rank_ns}) {
        for (TableCosts::OpCosts& row : *rows) {
            for (int64_t& ns : row) {
                ns =
                    std::llround(static_cast<double>(ns) * flops_per_ns / table.rates.flops_per_ns);
            }
        }
    }
    costs.latency_ns = table.rates.link.latency_ns;
    costs.bytes_per_ns = table.rates.link.bytes_per_ns;
    costs.piece_ns = piece_price(table);
    return costs;
}

}  // namespace vocabpipe
