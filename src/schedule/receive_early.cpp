// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/receive_early.hpp"

#include "src/support/parse_number.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/step_pieces.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

/// Values of receive_ahead between 1 and kAsSoonAsSent to try.
constexpr std::array<int, 4> kBetween{2, 3, 4, 8};

struct Candidate {
    Lowered lowered;
    int receive_ahead = 1;
    int64_t step_ns = 0;
    uint64_t arena_bytes = 0;  ///< largest of all ranks
};

}  // namespace

int receive_ahead_from(std::string_view text) {
    if (text == "auto") return 0;
    const std::optional<int> passes = parse_number<int>(text);
    if (!passes || *passes < 1 || *passes > 1 << 30) {
        throw UsageError("--receive-ahead " + std::string(text) +
                         ": must be auto or an integer from 1 to 2^30");
    }
    return *passes;
}

EarlyReceives lower_receiving_early(const Schedule& schedule, const StepSizes& sizes,
                                    const CostModel& costs, const LowerOptions& options,
                                    const SimulateOptions& simulation) {
    const auto lowered = [&](int receive_ahead) {
        LowerOptions with = options;
        with.receive_ahead = receive_ahead;
        Candidate made{.lowered = lower_world(schedule, sizes, costs, with),
                       .receive_ahead = receive_ahead};
        made.step_ns = simulate(made.lowered, costs, simulation).summary.step_ns;
        for (const Program& program : made.lowered.pipeline) {
            made.arena_bytes = std::max(made.arena_bytes, program.arena_bytes);
        }
        return made;
    };
    Candidate best = lowered(1);
    const uint64_t most_bytes = best.arena_bytes + best.arena_bytes / 100;
    const auto take = [&](Candidate&& other) {
        if (other.step_ns < best.step_ns && other.arena_bytes <= most_bytes) {
            best = std::move(other);
        }
    };
    Candidate soonest = lowered(kAsSoonAsSent);
    if (const int64_t least = soonest.step_ns; least < best.step_ns) {
        for (const int receive_ahead : kBetween) {
            if (best.step_ns > least) take(lowered(receive_ahead));
        }
        take(std::move(soonest));
    }
    return {std::move(best.lowered), best.receive_ahead};
}

EarlyReceives lower_step(const Schedule& schedule, const StepSizes& sizes, const CostModel& costs,
                         const LowerOptions& options, const SimulateOptions& simulation) {
    if (options.pieces == 0) {
        return lower_by_fastest_pieces(schedule, sizes, costs, options, simulation);
    }
    EarlyReceives made =
        options.receive_ahead == 0
            ? lower_receiving_early(schedule, sizes, costs, options, simulation)
            : EarlyReceives{lower_world(schedule, sizes, costs, options), options.receive_ahead};
    made.pieces = options.pieces;
    return made;
}

}  // namespace vocabpipe
