// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/simulate.hpp"

#include "src/schedule/action_costs.hpp"
#include "src/schedule/meetings.hpp"
#include "src/schedule/successors.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>

namespace vocabpipe {

namespace {

constexpr uint32_t kNone = UINT32_MAX;

/// One rank's program while it runs.
struct RankState {
    Successors edges;
    std::vector<uint32_t> missing;  ///< [action] edges and lane predecessor still to come
    std::vector<uint32_t> next_in_lane;
    std::vector<uint32_t> next_in_order;  ///< [action] communication after it in the program
    Span* spans = nullptr;                ///< [action]

    // The pass on the compute lane. Work is counted in thousandths of a nanosecond at full speed
    // times (1000 + slowdown) / 1000, so that both speeds are whole numbers.
    uint32_t running = kNone;
    int64_t work = 0;
    int64_t slowdown = 0;  ///< of the running pass
    int64_t since_ns = 0;  ///< up to when `work` is right
    int communicating = 0;
};

/// All participants of one communication.
struct Meeting {
    uint32_t arrived = 0;
    uint32_t first_member = kNone;  ///< linked list in the order of arrival
    int64_t bytes = 0;
};

class Simulator {
public:
    Simulator(const std::vector<Program>& programs, const CostModel& costs,
              const SimulateOptions& options)
        : programs_(programs),
          costs_(costs),
          own_cores_(options.cores == 0),
          cores_(own_cores_ ? 1 : options.cores),
          sharing_(cores_),
          order_(costs.communication_order()),
          meetings_(programs),
          meeting_(meetings_.count()) {
        base_.push_back(0);
        for (const Program& program : programs) {
            base_.push_back(base_.back() + static_cast<uint32_t>(program.actions.size()));
        }
        next_member_.assign(base_.back(), kNone);
        timeline_.spans.resize(base_.back());
        timeline_.fixed_ns = costs.fixed_step_ns();
        timeline_.early_update = !options.wait_for_reports;
        ranks_.resize(programs.size());
        for (size_t rank = 0; rank < programs.size(); ++rank) prepare(rank);
    }

    Timeline run() {
        for (size_t rank = 0; rank < programs_.size(); ++rank) {
            for (uint32_t i = 0; i < programs_[rank].actions.size(); ++i) {
                if (ranks_[rank].missing[i] == 0) startable_.push_back({at(rank), i});
            }
        }
        settle(0);
        while (!events_.empty()) {
            const Event event = events_.top();
            events_.pop();
            if (is_stale(event)) continue;
            finish(event);
            settle(event.at_ns);
        }
        if (done_ != base_.back()) {
            throw UsageError("the programs get stuck after " + std::to_string(done_) + " of " +
                             std::to_string(base_.back()) + " actions");
        }
        return std::move(timeline_);
    }

private:
    /// The end of an action; of a communication, of all its participants.
    struct Event {
        int64_t at_ns = 0;
        uint32_t rank = 0;
        uint32_t action = 0;
        bool operator>(const Event& other) const { return at_ns > other.at_ns; }
    };
    struct Startable {
        uint32_t rank = 0;
        uint32_t action = 0;
    };
    static uint32_t at(size_t rank) { return static_cast<uint32_t>(rank); }

    void prepare(size_t rank) {
        const Program& program = programs_[rank];
        const size_t count = program.actions.size();
        RankState& state = ranks_[rank];
        state.edges = Successors(count, program.edges);
        state.missing = state.edges.missing;
        state.next_in_lane.assign(count, kNone);
        state.next_in_order.assign(count, kNone);
        state.spans = timeline_.spans.data() + base_[rank];
        std::array<uint32_t, kLanes> last;
        last.fill(kNone);
        for (uint32_t i = 0; i < count; ++i) {
            const Lane lane = program.actions[i].lane;
            Span& span = state.spans[i];
            span.action = i;
            span.rank = static_cast<uint16_t>(rank);
            span.lane = lane;
            span.ready_ns = 0;
            uint32_t& previous = last[static_cast<size_t>(lane)];
            if (previous != kNone) {
                state.next_in_lane[previous] = i;
                ++state.missing[i];
            }
            previous = i;
        }
        if (order_ == CommunicationOrder::launches || order_ == CommunicationOrder::serial) {
            uint32_t launched = kNone;
            for (uint32_t i = 0; i < count; ++i) {
                if (!is_communication(program.actions[i].what)) continue;
                if (launched != kNone) {
                    state.next_in_order[launched] = i;
                    ++state.missing[i];
                }
                launched = i;
            }
        }
        if (!timeline_.early_update) return;
        for (const Edge& edge : program.edges) {
            if (is_report(program, edge)) --state.missing[edge.after];
        }
    }

    /// From the all-gather of reports to the optimizer step.
    static bool is_report(const Program& program, const Edge& edge) {
        const Action& after = program.actions[edge.after];
        return after.what == Do::pass && program.passes[after.item].op == Op::Update &&
               is_communication(program.actions[edge.before].what);
    }

    // --- starting --------------------------------------------------------------------------------

    void satisfied(uint32_t rank, uint32_t action, uint32_t by, int64_t now) {
        RankState& state = ranks_[rank];
        Span& span = state.spans[action];
        if (now > span.ready_ns || span.waited_for == kNone ||
            preferred(programs_[rank], by, span.waited_for)) {
            span.ready_ns = now;
            span.waited_for = by;
        }
        if (--state.missing[action] == 0) startable_.push_back({rank, action});
    }

    /// Which of two actions that came at the same moment is named: the pass before, if it is one of
    /// them, for then the rank was not idle.
    static bool preferred(const Program& program, uint32_t a, uint32_t b) {
        const bool pass_a = program.actions[a].lane == Lane::compute;
        const bool pass_b = program.actions[b].lane == Lane::compute;
        return pass_a != pass_b ? pass_a : a < b;
    }

    void settle(int64_t now) {
        while (!startable_.empty()) {
            const Startable next = startable_.back();
            startable_.pop_back();
            start(next.rank, next.action, now);
        }
    }

    auto sizes(uint32_t rank) const {
        return [&buffers = programs_[rank].buffers](uint32_t buffer) {
            return static_cast<int64_t>(buffers[buffer].bytes);
        };
    }

    void start(uint32_t rank, uint32_t index, int64_t now) {
        const Action& action = programs_[rank].actions[index];
        if (is_communication(action.what)) {
            meet(rank, index, now);
        } else if (action.lane == Lane::compute) {
            start_pass(rank, index, now);
        } else {
            const int64_t bytes = bytes_touched(programs_[rank].operands_of(action), sizes(rank));
            begin_action(rank, index, now);
            events_.push({now + costs_.local_ns(action.what, bytes), rank, index});
        }
        if (order_ == CommunicationOrder::lanes && action.lane != Lane::compute) {
            go_on(rank, ranks_[rank].next_in_lane[index], index, now);
        }
        if (order_ == CommunicationOrder::launches) {
            go_on(rank, ranks_[rank].next_in_order[index], index, now);
        }
    }

    void go_on(uint32_t rank, uint32_t next, uint32_t by, int64_t now) {
        if (next != kNone) satisfied(rank, next, by, now);
    }

    void begin_action(uint32_t rank, uint32_t index, int64_t now) {
        ranks_[rank].spans[index].begin_ns = now;
    }

    void meet(uint32_t rank, uint32_t index, int64_t now) {
        const Program& program = programs_[rank];
        const Action& action = program.actions[index];
        Meeting& meeting = meeting_[meetings_.of(action)];
        meeting.bytes =
            std::max(meeting.bytes, bytes_sent(program.operands_of(action), sizes(rank)));
        next_member_[base_[rank] + index] = meeting.first_member;
        meeting.first_member = base_[rank] + index;
        const Group& group = program.groups[action.group];
        if (++meeting.arrived < group.ranks.size()) return;
        const int64_t duration =
            costs_.transfer_ns(transfer_kind(action.what), group, meeting.bytes);
        for_members(meeting, [&](uint32_t member, uint32_t of_member) {
            begin_action(member, of_member, now);
            if (duration > 0 && ++ranks_[member].communicating == 1) change_speed(member, now);
        });
        events_.push({now + duration, rank, index});
    }

    template <typename Visit>
    void for_members(const Meeting& meeting, Visit&& visit) {
        for (uint32_t id = meeting.first_member; id != kNone; id = next_member_[id]) {
            const Span& span = timeline_.spans[id];
            visit(span.rank, span.action);
        }
    }

    // --- passes, which communication slows down --------------------------------------------------

    static constexpr int64_t kFull = 1000;

    void start_pass(uint32_t rank, uint32_t index, int64_t now) {
        const Program& program = programs_[rank];
        const Action& action = program.actions[index];
        RankState& state = ranks_[rank];
        begin_action(rank, index, now);
        share_cores(passes_ + 1, now);
        const Pass& pass = program.passes[action.item];
        state.running = index;
        state.slowdown = costs_.overlap_slowdown_permille(static_cast<int>(rank), pass);
        state.work = (kFull + state.slowdown) * pass_duration(costs_, program.rank, program.passes,
                                                              action.item, program.pairs);
        state.since_ns = now;
        schedule_end(rank);
    }

    [[nodiscard]] static int64_t speed(const RankState& state) {
        return state.communicating > 0 ? kFull : kFull + state.slowdown;
    }

    void schedule_end(uint32_t rank) {
        RankState& state = ranks_[rank];
        // work * sharing_ / per_ns, rounded up without leaving 64 bits.
        const int64_t per_ns = speed(state) * cores_;
        const int64_t work = std::max<int64_t>(0, state.work);
        const int64_t left =
            work / per_ns * sharing_ + (work % per_ns * sharing_ + per_ns - 1) / per_ns;
        Span& span = state.spans[state.running];
        span.end_ns = state.since_ns + left;
        events_.push({span.end_ns, rank, state.running});
    }

    /// `communicating` has just become 0 or 1.
    void change_speed(uint32_t rank, int64_t now) {
        RankState& state = ranks_[rank];
        if (state.running == kNone || state.slowdown == 0) return;
        const int64_t before = state.communicating > 0 ? kFull + state.slowdown : kFull;
        work_until(state, before, now);
        schedule_end(rank);
    }

    void work_until(RankState& state, int64_t speed, int64_t now) const {
        const int64_t alone = (now - state.since_ns) * speed;
        state.work -= alone / sharing_ * cores_ + alone % sharing_ * cores_ / sharing_;
        state.since_ns = now;
    }

    /// `passes` run from now on.
    void share_cores(int passes, int64_t now) {
        passes_ = passes;
        const int64_t sharing = own_cores_ ? 1 : std::max<int64_t>(passes, cores_);
        if (sharing == sharing_) return;
        for (RankState& state : ranks_) {
            if (state.running != kNone) work_until(state, speed(state), now);
        }
        sharing_ = sharing;
        for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
            if (ranks_[rank].running != kNone) schedule_end(rank);
        }
    }

    /// The end of a pass that was moved since.
    [[nodiscard]] bool is_stale(const Event& event) const {
        const RankState& state = ranks_[event.rank];
        if (programs_[event.rank].actions[event.action].lane != Lane::compute) return false;
        return state.running != event.action || state.spans[event.action].end_ns != event.at_ns;
    }

    // --- ending ----------------------------------------------------------------------------------

    void finish(const Event& event) {
        const Action& action = programs_[event.rank].actions[event.action];
        if (!is_communication(action.what)) {
            end_action(event.rank, event.action, event.at_ns);
            return;
        }
        for_members(meeting_[meetings_.of(action)], [&](uint32_t member, uint32_t of_member) {
            const bool lasted = ranks_[member].spans[of_member].begin_ns < event.at_ns;
            if (lasted && --ranks_[member].communicating == 0) change_speed(member, event.at_ns);
            end_action(member, of_member, event.at_ns);
        });
    }

    void end_action(uint32_t rank, uint32_t index, int64_t now) {
        RankState& state = ranks_[rank];
        const Program& program = programs_[rank];
        Span& span = state.spans[index];
        span.end_ns = now;
        span.cpu_ns = now - span.begin_ns;
        ++done_;
        for (const uint32_t next : state.edges.of(index)) {
            if (timeline_.early_update && is_report(program, {index, next})) continue;
            satisfied(rank, next, index, now);
        }
        const bool compute = program.actions[index].lane == Lane::compute;
        if (compute) {
            state.running = kNone;
            share_cores(passes_ - 1, now);
        }
        if (compute || order_ != CommunicationOrder::lanes) {
            go_on(rank, state.next_in_lane[index], index, now);
        }
        if (order_ == CommunicationOrder::serial) {
            go_on(rank, state.next_in_order[index], index, now);
        }
    }

    const std::vector<Program>& programs_;
    const CostModel& costs_;
    // A pass runs at cores_ / sharing_ of its speed.
    const bool own_cores_;
    const int64_t cores_;
    int64_t sharing_;
    int passes_ = 0;  ///< that run now
    const CommunicationOrder order_;
    std::vector<RankState> ranks_;
    std::vector<uint32_t> base_;  ///< [rank] id of its first action; ranks + 1 entries
    Meetings meetings_;
    std::vector<Meeting> meeting_;
    std::vector<uint32_t> next_member_;  ///< [action id]
    std::vector<Startable> startable_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    uint32_t done_ = 0;
    Timeline timeline_;  ///< spans by action id
};

}  // namespace

Simulation simulate(const std::vector<Program>& programs, const CostModel& costs,
                    const SimulateOptions& options) {
    Simulation simulation;
    simulation.timeline = Simulator(programs, costs, options).run();
    simulation.summary = summarize(simulation.timeline, programs);
    simulation.memory = memory_over_time(simulation.timeline, programs, options.persistent);
    for (const RankMemory& memory : simulation.memory) {
        const PersistentBytes& always = memory.persistent;
        simulation.peak_bytes.push_back(memory.peak_bytes - always.weights - always.gradients -
                                        always.optimizer);
    }
    return simulation;
}

}  // namespace vocabpipe
