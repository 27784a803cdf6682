// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/stuck_report.hpp"

#include "src/schedule/ops.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>

namespace vocabpipe {

std::string StuckReport::where(int64_t step) const {
    return "rank " + std::to_string(rank_) + ": step " + std::to_string(step) + ": " + at() +
           " for " + awaited();
}

void StuckReport::give_up(int64_t step, const IdleWait& idle, IdleWait::Verdict verdict) const {
    throw CommunicationError(where(step) + idle.outcome(verdict));
}

std::string StuckReport::at() const {
    const Program& program = progress_.loaded->program;
    if (const uint32_t* const pass = progress_.current_pass()) {
        return "waits at " + program.name_of(program.actions[*pass]);
    }
    return asynchronous_ && progress_.in_flight.empty() ? "has started all its passes and waits"
                                                        : "has run all its passes and waits";
}

std::string StuckReport::awaited() const {
    const Program& program = progress_.loaded->program;
    std::string open;
    for (const uint32_t index : unfinished_transfers()) {
        const Action& action = program.actions[index];
        if (!open.empty()) open += ", ";
        open += program.name_of(action);
        if (action.lane != Lane::collective) continue;
        open += " (ranks";
        for (const int member : program.groups[action.group].ranks) {
            if (member != rank_) open.append(" ").append(std::to_string(member));
        }
        open += ")";
    }
    const bool runs = asynchronous_ && progress_.settled < progress_.started.size();
    if (open.empty() && runs) {
        const uint32_t first = progress_.started[progress_.settled];
        return "the device to run " + program.name_of(program.actions[first]);
    }
    return open.empty() ? "nothing that was started" : open;
}

/// Started transfers that have not completed. On streams only the first of each lane, because the
/// others wait behind it.
std::vector<uint32_t> StuckReport::unfinished_transfers() const {
    std::vector<uint32_t> open;
    if (!asynchronous_ || !progress_.in_flight.empty()) {
        for (const StepProgress::InFlight& flight : progress_.in_flight) {
            // An action in pieces once, for its first open piece.
            if (std::ranges::find(open, flight.action) == open.end()) {
                open.push_back(flight.action);
            }
        }
        return open;
    }
    std::array<bool, kLanes> seen{};
    for (size_t i = progress_.settled; i < progress_.started.size(); ++i) {
        const uint32_t index = progress_.started[i];
        const Action& action = progress_.action(index);
        if (!is_communication(action.what)) continue;
        bool& known = seen[static_cast<size_t>(action.lane)];
        if (known || lanes_.finished(index)) continue;
        known = true;
        open.push_back(index);
    }
    return open;
}

}  // namespace vocabpipe
