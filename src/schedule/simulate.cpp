// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/simulate.hpp"

#include "src/schedule/communication.hpp"
#include "src/schedule/successors.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <unordered_map>

namespace vocabpipe {

namespace {

/// One rank's program while it runs.
struct RankState {
    std::vector<uint32_t> missing;     ///< [action] edges and lane predecessor still to come
    std::vector<int64_t> ready_ns;     ///< [action] when the last of them came
    std::vector<uint32_t> waited_for;  ///< [action] which one that was
    Successors edges;
    std::vector<uint32_t> next_in_lane;
};

/// What the busiest participant sends, as the cost model wants it.
int64_t bytes_moved(const Program& program, const Action& action) {
    const auto operands = program.operands_of(action);
    const uint32_t buffer =
        operands[0] != kNoBuffer || operands.size() < 2 ? operands[0] : kNoBuffer;
    return buffer == kNoBuffer ? 0 : static_cast<int64_t>(program.buffers[buffer].bytes);
}

class Simulator {
public:
    Simulator(const std::vector<Program>& programs, const CostModel& costs)
        : programs_(programs), costs_(costs) {
        for (const Program& program : programs) ranks_.push_back(prepare(program));
    }

    Timeline run() {
        for (size_t rank = 0; rank < programs_.size(); ++rank) {
            for (uint32_t i = 0; i < programs_[rank].actions.size(); ++i) {
                if (ranks_[rank].missing[i] == 0) reached(rank, i, 0);
            }
        }
        while (!events_.empty()) {
            const Event event = events_.top();
            events_.pop();
            if (event.kind == Event::kStart) {
                start(event.rank, event.action, event.at);
            } else {
                end(event.rank, event.action, event.at);
            }
        }
        size_t total = 0;
        for (const Program& program : programs_) total += program.actions.size();
        if (timeline_.spans.size() != total) {
            throw UsageError("the programs get stuck after " +
                             std::to_string(timeline_.spans.size()) + " of " +
                             std::to_string(total) + " actions");
        }
        return std::move(timeline_);
    }

private:
    struct Event {
        enum Kind : uint8_t { kEnd, kStart };
        int64_t at = 0;
        Kind kind = kEnd;
        uint32_t order = 0;  ///< ties: global order, then rank
        uint32_t rank = 0;
        uint32_t action = 0;
        bool operator>(const Event& other) const {
            return std::tie(at, kind, order, rank, action) >
                   std::tie(other.at, other.kind, other.order, other.rank, other.action);
        }
    };
    struct Meeting {
        uint32_t arrived = 0;
        int64_t ready_ns = 0;
        int64_t bytes = 0;
        std::vector<std::pair<uint32_t, uint32_t>> members;  ///< rank, action
    };

    static RankState prepare(const Program& program) {
        const size_t count = program.actions.size();
        RankState state;
        state.edges = Successors(count, program.edges);
        state.missing = state.edges.missing;
        state.ready_ns.assign(count, 0);
        state.waited_for.assign(count, UINT32_MAX);
        state.next_in_lane.assign(count, UINT32_MAX);
        std::array<uint32_t, kLanes> last;
        last.fill(UINT32_MAX);
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t& previous = last[static_cast<size_t>(program.actions[i].lane)];
            if (previous != UINT32_MAX) {
                state.next_in_lane[previous] = i;
                ++state.missing[i];
            }
            previous = i;
        }
        return state;
    }

    void satisfied(size_t rank, uint32_t action, uint32_t by, int64_t at) {
        RankState& state = ranks_[rank];
        if (at >= state.ready_ns[action]) {
            state.ready_ns[action] = at;
            state.waited_for[action] = by;
        }
        if (--state.missing[action] == 0) reached(rank, action, state.ready_ns[action]);
    }

    /// The action's own rank is ready for it.
    void reached(size_t rank, uint32_t action, int64_t at) {
        events_.push({at, Event::kStart, programs_[rank].actions[action].order,
                      static_cast<uint32_t>(rank), action});
    }

    void start(uint32_t rank, uint32_t index, int64_t at) {
        const Program& program = programs_[rank];
        const Action& action = program.actions[index];
        if (!is_communication(action.what)) {
            const int64_t duration =
                action.what == Do::pass
                    ? costs_.pass_ns(static_cast<int>(rank), program.passes[action.item])
                    : costs_.local_ns(action.what, local_bytes(program, action));
            begin(rank, index, at, at + duration);
        } else {
            const Group& group = program.groups[action.group];
            Meeting& meeting = meetings_[action.order];
            ++meeting.arrived;
            meeting.ready_ns = std::max(meeting.ready_ns, at);
            meeting.bytes = std::max(meeting.bytes, bytes_moved(program, action));
            meeting.members.emplace_back(rank, index);
            if (meeting.arrived == group.ranks.size()) {
                const Do what = action.what == Do::receive ? Do::send : action.what;
                const int64_t duration = costs_.transfer_ns(what, group, meeting.bytes);
                for (const auto& [member, member_action] : meeting.members) {
                    begin(member, member_action, meeting.ready_ns, meeting.ready_ns + duration);
                }
                meetings_.erase(action.order);
            }
        }
        // A lane of communication goes on once its head has started; compute waits for the end.
        const uint32_t next = ranks_[rank].next_in_lane[index];
        if (action.lane != Lane::compute && next != UINT32_MAX) satisfied(rank, next, index, at);
    }

    static int64_t local_bytes(const Program& program, const Action& action) {
        int64_t bytes = 0;
        for (const uint32_t operand : program.operands_of(action)) {
            if (operand != kNoBuffer) bytes += static_cast<int64_t>(program.buffers[operand].bytes);
        }
        return bytes;
    }

    void begin(uint32_t rank, uint32_t index, int64_t from, int64_t to) {
        timeline_.spans.push_back({index, ranks_[rank].waited_for[index],
                                   static_cast<uint16_t>(rank), programs_[rank].actions[index].lane,
                                   from, to, to - from});
        events_.push({to, Event::kEnd, programs_[rank].actions[index].order, rank, index});
    }

    void end(uint32_t rank, uint32_t index, int64_t at) {
        const RankState& state = ranks_[rank];
        for (const uint32_t next : state.edges.of(index)) {
            satisfied(rank, next, index, at);
        }
        if (programs_[rank].actions[index].lane == Lane::compute &&
            state.next_in_lane[index] != UINT32_MAX) {
            satisfied(rank, state.next_in_lane[index], index, at);
        }
    }

    const std::vector<Program>& programs_;
    const CostModel& costs_;
    std::vector<RankState> ranks_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::unordered_map<uint32_t, Meeting> meetings_;
    Timeline timeline_;
};

/// Largest sum of bytes alive: a buffer lives from the start of its first user to the last user's
/// end.
std::vector<uint64_t> peaks(const std::vector<Program>& programs, const Timeline& timeline) {
    std::vector<std::vector<std::pair<int64_t, int64_t>>> span_of(programs.size());
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        span_of[rank].resize(programs[rank].actions.size());
    }
    for (const Span& span : timeline.spans) {
        span_of[span.rank][span.action] = {span.begin_ns, span.end_ns};
    }
    std::vector<uint64_t> result;
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        const Program& program = programs[rank];
        std::vector<std::pair<int64_t, int64_t>> life(program.buffers.size(),
                                                      {INT64_MAX, INT64_MIN});
        for (uint32_t i = 0; i < program.actions.size(); ++i) {
            for (const uint32_t operand : program.operands_of(program.actions[i])) {
                if (operand == kNoBuffer) continue;
                life[operand].first = std::min(life[operand].first, span_of[rank][i].first);
                life[operand].second = std::max(life[operand].second, span_of[rank][i].second);
            }
        }
        std::vector<std::pair<int64_t, int64_t>> changes;  // time, bytes; deaths sort first
        for (size_t b = 0; b < program.buffers.size(); ++b) {
            if (program.buffers[b].space != Buffer::Space::arena) continue;
            const auto bytes = static_cast<int64_t>(program.buffers[b].bytes);
            changes.emplace_back(life[b].first, bytes);
            changes.emplace_back(life[b].second, -bytes);
        }
        std::sort(changes.begin(), changes.end());
        int64_t live = 0;
        int64_t peak = 0;
        for (const auto& [time, bytes] : changes) peak = std::max(peak, live += bytes);
        result.push_back(static_cast<uint64_t>(peak));
    }
    return result;
}

}  // namespace

Simulation simulate(const std::vector<Program>& programs, const CostModel& costs) {
    Simulation simulation;
    simulation.timeline = Simulator(programs, costs).run();
    simulation.summary = summarize(simulation.timeline, programs);
    simulation.peak_bytes = peaks(programs, simulation.timeline);
    return simulation;
}

}  // namespace vocabpipe
