// SPDX-License-Identifier: Apache-2.0
// A simulation by events: ends of actions and arrivals of pieces, in order of time. After each
// event the actions start whose edges and lane predecessors are satisfied; a communication starts
// when its last participant arrives. When the speed of a pass changes, because communication begins
// or ends or cores are shared anew, its end is scheduled again and the old event is stale.
#include "vocabpipe/simulate.hpp"

#include "src/schedule/action_costs.hpp"
#include "src/schedule/meetings.hpp"
#include "src/schedule/simulated_rank.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <functional>
#include <queue>

namespace vocabpipe {

namespace {

constexpr uint32_t kNone = SimulatedRank::kNone;

/// All participants of one communication.
struct Meeting {
    uint32_t arrived = 0;
    uint32_t first_member = kNone;  ///< linked list in the order of arrival
    int64_t bytes = 0;
    int64_t link_free_ns = 0;  ///< in pieces: when the next one may be sent
    int pieces = 0;            ///< pieces sent so far
    bool complete = false;     ///< all participants have arrived
};

class Simulator {
public:
    Simulator(const std::vector<Program>& programs, const CostModel& costs,
              const SimulateOptions& options)
        : programs_(programs),
          costs_(costs),
          own_cores_(options.cores == 0),
          copies_(options.copies),
          share_{.cores = own_cores_ ? 1 : options.cores,
                 .sharing = own_cores_ ? 1 : options.cores},
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
    /// The end of an action; for a communication, of all its participants.
    struct Event {
        int64_t at_ns = 0;
        uint32_t rank = 0;
        uint32_t action = 0;
        int piece = -1;  ///< of a streamed communication
        /// Pieces that arrive at once are handled in order.
        bool operator>(const Event& other) const {
            return at_ns != other.at_ns ? at_ns > other.at_ns : piece > other.piece;
        }
    };
    struct Startable {
        uint32_t rank = 0;
        uint32_t action = 0;
    };
    static uint32_t at(size_t rank) { return static_cast<uint32_t>(rank); }

    void prepare(size_t rank) {
        const Program& program = programs_[rank];
        SimulatedRank& state = ranks_[rank];
        state.begin(program, static_cast<uint16_t>(rank), order_,
                    timeline_.spans.data() + base_[rank]);
        if (state.edges.any() && rows_.empty()) {
            rows_.resize(base_.back(), 0);
            entered_.resize(base_.back(), false);
            launched_.resize(base_.back(), false);
        }
        if (!timeline_.early_update) return;
        for (const Edge& edge : program.edges) {
            if (is_report(program, edge)) --state.missing[edge.after];
        }
    }

    /// Whether the edge is from the all-gather of reports to the optimizer step.
    static bool is_report(const Program& program, const Edge& edge) {
        const Action& after = program.actions[edge.after];
        return after.what == Do::pass && program.passes[after.item].op == Op::Update &&
               is_communication(program.actions[edge.before].what);
    }

    // --- starting --------------------------------------------------------------------------------

    void satisfied(uint32_t rank, uint32_t action, uint32_t by, int64_t now) {
        SimulatedRank& state = ranks_[rank];
        Span& span = state.spans[action];
        if (now > span.ready_ns || span.waited_for == kNone ||
            preferred(programs_[rank], by, span.waited_for)) {
            span.ready_ns = now;
            span.waited_for = by;
        }
        if (--state.missing[action] == 0) startable_.push_back({rank, action});
    }

    /// Whether `a` is named as waited_for when `a` and `b` end at the same moment: a pass is
    /// preferred, because then the rank was not idle.
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
        if (!entered_.empty()) entered_[base_[rank] + index] = true;
        if (order_ == CommunicationOrder::lanes && action.lane != Lane::compute &&
            has_all_rows(rank, index)) {
            go_on(rank, ranks_[rank].next_in_lane[index], index, now);
        }
        launch_next(rank, index, now);
    }

    /// Lets the next launch start when this one has started or, in pieces, when its last piece has:
    /// the pieces are launches of one communicator, which run one after the other.
    void launch_next(uint32_t rank, uint32_t index, int64_t now, bool ended = false) {
        const Action& action = programs_[rank].actions[index];
        if (order_ != CommunicationOrder::launches || !is_communication(action.what)) return;
        const uint32_t id = base_[rank] + index;
        if (!launched_.empty()) {
            const bool last_begins = entered_[id] && has_all_rows(rank, index) &&
                                     (action.pieces == 1 || rows_[id] + 1 >= action.pieces);
            if (launched_[id] || !(last_begins || ended)) return;
            launched_[id] = true;
        }
        go_on(rank, ranks_[rank].next_in_order[index], index, now);
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
        meeting.bytes = std::max(meeting.bytes,
                                 bytes_sent(action.what, program.operands_of(action), sizes(rank)));
        next_member_[base_[rank] + index] = meeting.first_member;
        meeting.first_member = base_[rank] + index;
        const Group& group = program.groups[action.group];
        if (++meeting.arrived < group.ranks.size()) return;
        meeting.complete = true;
        if (is_streamed(meeting)) {
            send_pieces(meeting, now);
            return;
        }
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

    void start_pass(uint32_t rank, uint32_t index, int64_t now) {
        const Program& program = programs_[rank];
        const Action& action = program.actions[index];
        SimulatedRank& state = ranks_[rank];
        begin_action(rank, index, now);
        const bool second = action.pair_member == 2;
        if (state.running[second ? 0 : 1].action == kNone) share_cores(passes_ + 1, now);
        const Pass& pass = program.passes[action.item];
        const int64_t whole = costs_.pass_ns(program.rank, pass);
        RunningPass& running = state.running[second ? 1 : 0];
        running.slowdown = costs_.overlap_slowdown_permille(static_cast<int>(rank), pass);
        running.work = (SimulatedRank::kFull + running.slowdown) * whole;
        if (action.pair_member > 0) {
            running.computes = computing_permille(whole, costs_.exchange_ns(program.rank, pass));
        }
        change_pair(rank, running, now, [&] { running.action = index; });
        running.since_ns = now;
        if (running.stream) running.stream = {};
        if (state.edges.streams(index)) {
            begin_stream(rank, running, pass);
            for (const uint32_t taker : state.edges.takers_of(index)) {
                satisfied(rank, taker, index, now);
            }
            go_on_with_pass(rank, running, now);
        } else {
            schedule_end(rank, running);
        }
        if (action.pair_member == 1) begin_second(rank, index, now);
    }

    /// The first pass of a pair has begun, so the second may; it has waited for what that did.
    void begin_second(uint32_t rank, uint32_t first, int64_t now) {
        SimulatedRank& state = ranks_[rank];
        const uint32_t second = state.beside[first];
        const uint32_t by = state.spans[first].waited_for;
        if (by != kNone) {
            satisfied(rank, second, by, now);
        } else if (--state.missing[second] == 0) {
            startable_.push_back({rank, second});
        }
    }

    /// Makes a change of a pass after which the other one of its pair may run at another speed.
    template <typename Change>
    void change_pair(uint32_t rank, RunningPass& changed, int64_t now, Change&& change) {
        SimulatedRank& state = ranks_[rank];
        RunningPass& other = state.running[&changed == state.running.data() ? 1 : 0];
        if (other.is_working()) other.work_until(now, state.speed(other), state.own_share(share_));
        change();
        if (other.is_working()) schedule_end(rank, other);
    }

    void schedule_end(uint32_t rank, const RunningPass& pass) {
        const SimulatedRank& state = ranks_[rank];
        Span& span = state.spans[pass.action];
        span.end_ns = pass.since_ns + pass.ns_left(state.speed(pass), state.own_share(share_));
        events_.push({span.end_ns, rank, pass.action});
    }

    /// `communicating` has just become 0 or 1.
    void change_speed(uint32_t rank, int64_t now) {
        SimulatedRank& state = ranks_[rank];
        for (RunningPass& pass : state.running) {
            if (!pass.is_working() || pass.slowdown == 0) continue;
            const int64_t before = state.communicating > 0 ? SimulatedRank::kFull + pass.slowdown
                                                           : SimulatedRank::kFull;
            pass.work_until(now, before, state.own_share(share_));
            schedule_end(rank, pass);
        }
    }

    /// `passes` run from now on.
    void share_cores(int passes, int64_t now) {
        passes_ = passes;
        const int64_t sharing = own_cores_ ? 1 : std::max<int64_t>(passes * copies_, share_.cores);
        if (sharing == share_.sharing) return;
        for (SimulatedRank& state : ranks_) {
            for (RunningPass& pass : state.running) {
                if (!pass.is_working()) continue;
                pass.work_until(now, state.speed(pass), state.own_share(share_));
            }
        }
        share_.sharing = sharing;
        for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
            for (const RunningPass& pass : ranks_[rank].running) {
                if (pass.is_working()) schedule_end(rank, pass);
            }
        }
    }

    /// Whether the event is an end of a pass that has moved since.
    [[nodiscard]] bool is_stale(const Event& event) const {
        const SimulatedRank& state = ranks_[event.rank];
        if (programs_[event.rank].actions[event.action].lane != Lane::compute) return false;
        const RunningPass& running = state.running_of(event.action);
        return running.action != event.action || running.stream.waits() ||
               state.spans[event.action].end_ns != event.at_ns;
    }

    // --- rows that stream ------------------------------------------------------------------------

    /// Whether all rows that the action sends are made when it starts.
    [[nodiscard]] bool has_all_rows(uint32_t rank, uint32_t index) const {
        const uint32_t source = ranks_[rank].edges.source_of(index);
        return source == kNone ||
               rows_[base_[rank] + source] == programs_[rank].actions[index].pieces;
    }
    [[nodiscard]] const Action& action_of(uint32_t id) const {
        const Span& span = timeline_.spans[id];
        return programs_[span.rank].actions[span.action];
    }
    [[nodiscard]] bool is_streamed(const Meeting& meeting) {
        if (rows_.empty()) return false;
        bool streamed = false;
        for_members(meeting, [&](uint32_t member, uint32_t of_member) {
            streamed = streamed || ranks_[member].edges.streams(of_member);
        });
        return streamed;
    }

    void begin_stream(uint32_t rank, RunningPass& running, const Pass& pass) {
        const SimulatedRank& state = ranks_[rank];
        const Program& program = programs_[rank];
        const uint32_t source = state.edges.source_of(running.action);
        int made = 0;
        for (const uint32_t taker : state.edges.takers_of(running.action)) {
            made = std::max<int>(made, program.actions[taker].pieces);
        }
        running.stream =
            StreamingPass(running.work, costs_.streamed_share(static_cast<int>(rank), pass),
                          source == kNone ? 0 : program.actions[source].pieces, made,
                          SimulatedRank::kFull + running.slowdown);
    }

    /// Continues the pass to its next piece or its end.
    void go_on_with_pass(uint32_t rank, RunningPass& running, int64_t now) {
        SimulatedRank& state = ranks_[rank];
        const uint32_t pass = running.action;
        const uint32_t source = state.edges.source_of(pass);
        while (const StreamingPass::Point* const point = running.stream.here()) {
            if (point->needed) {
                if (rows_[base_[rank] + source] < point->piece) {
                    change_pair(rank, running, now, [&] { running.stream.wait(now); });
                    return;
                }
            } else {
                rows_[base_[rank] + pass] = point->piece;
                made(rank, running, now);
            }
            running.stream.pass();
        }
        if (running.stream.is_over()) {
            end_action(rank, pass, now);
            return;
        }
        running.work = running.stream.work_to_next();
        running.since_ns = now;
        schedule_end(rank, running);
    }

    /// The pass has made another piece.
    void made(uint32_t rank, const RunningPass& running, int64_t now) {
        const SimulatedRank& state = ranks_[rank];
        const uint32_t pass = running.action;
        const Program& program = programs_[rank];
        for (const uint32_t taker : state.edges.takers_of(pass)) {
            // As in the executor, a lane continues when all pieces have been handed over.
            if (order_ == CommunicationOrder::lanes &&
                rows_[base_[rank] + pass] == running.stream.made() &&
                entered_[base_[rank] + taker]) {
                go_on(rank, state.next_in_lane[taker], taker, now);
            }
            launch_next(rank, taker, now);
            Meeting& meeting = meeting_[meetings_.of(program.actions[taker])];
            if (meeting.complete) send_pieces(meeting, now);
        }
    }

    /// Begins a communication with its first piece; members that make the rows are not ready
    /// earlier.
    void begin_pieces(const Meeting& meeting, int64_t now) {
        for_members(meeting, [&](uint32_t member, uint32_t of_member) {
            begin_action(member, of_member, now);
            SimulatedRank& state = ranks_[member];
            if (state.edges.source_of(of_member) != kNone) state.spans[of_member].ready_ns = now;
            if (++state.communicating == 1) change_speed(member, now);
        });
    }

    /// Sends the pieces that all members have made, one after the other on the link.
    void send_pieces(Meeting& meeting, int64_t now) {
        const uint32_t first = meeting.first_member;
        const Action& action = action_of(first);
        const Program& program = programs_[timeline_.spans[first].rank];
        int ready = action.pieces;
        for_members(meeting, [&](uint32_t member, uint32_t of_member) {
            const uint32_t source = ranks_[member].edges.source_of(of_member);
            if (source == kNone) return;
            // No action sends as a whole rows that others send in pieces.
            ready = std::min(ready, rows_[base_[member] + source]);
        });
        const auto duration = [&](int64_t bytes) {
            return costs_.transfer_ns(transfer_kind(action.what), program.groups[action.group],
                                      bytes);
        };
        const int64_t whole = duration(meeting.bytes / action.pieces);
        if (meeting.pieces == 0 && ready > 0) begin_pieces(meeting, now);
        for (; meeting.pieces < ready; ++meeting.pieces) {
            const int64_t begin = std::max(now, meeting.link_free_ns);
            meeting.link_free_ns = begin + whole - (action.pieces > 1 ? duration(0) : 0);
            const Span& span = timeline_.spans[first];
            events_.push({begin + whole, span.rank, span.action, meeting.pieces + 1});
        }
    }

    /// A piece has arrived; returns whether it was the last one.
    bool arrive(const Event& event) {
        const Action& action = programs_[event.rank].actions[event.action];
        for_members(meeting_[meetings_.of(action)], [&](uint32_t member, uint32_t of_member) {
            SimulatedRank& state = ranks_[member];
            rows_[base_[member] + of_member] = event.piece;
            launch_next(member, of_member, event.at_ns);
            if (event.piece == 1) {
                for (const uint32_t taker : state.edges.takers_of(of_member)) {
                    satisfied(member, taker, of_member, event.at_ns);
                }
            }
            for (RunningPass& running : state.running) {
                if (!running.stream.waits() || state.edges.source_of(running.action) != of_member) {
                    continue;
                }
                timeline_.piece_waits.push_back({.pass = running.action,
                                                 .source = of_member,
                                                 .rank = static_cast<uint16_t>(member),
                                                 .piece = static_cast<uint16_t>(event.piece),
                                                 .begin_ns = running.stream.since_ns(),
                                                 .end_ns = event.at_ns});
                change_pair(member, running, event.at_ns, [&] { running.stream.go_on(); });
                go_on_with_pass(member, running, event.at_ns);
            }
        });
        return event.piece == action.pieces;
    }

    // --- ending ----------------------------------------------------------------------------------

    void finish(const Event& event) {
        const Action& action = programs_[event.rank].actions[event.action];
        if (!is_communication(action.what)) {
            RunningPass& running = ranks_[event.rank].running_of(event.action);
            if (action.lane == Lane::compute && running.stream) {
                running.stream.reached();
                go_on_with_pass(event.rank, running, event.at_ns);
            } else {
                end_action(event.rank, event.action, event.at_ns);
            }
            return;
        }
        if (event.piece >= 0 && !arrive(event)) return;
        for_members(meeting_[meetings_.of(action)], [&](uint32_t member, uint32_t of_member) {
            const bool lasted =
                event.piece >= 0 || ranks_[member].spans[of_member].begin_ns < event.at_ns;
            if (lasted && --ranks_[member].communicating == 0) change_speed(member, event.at_ns);
            end_action(member, of_member, event.at_ns);
        });
    }

    /// For the second pass of a pair, until when the first has run beside it, so that the rank's
    /// time counts once; else the past.
    [[nodiscard]] int64_t end_beside(uint32_t rank, uint32_t index) const {
        const SimulatedRank& state = ranks_[rank];
        if (programs_[rank].actions[index].pair_member != 2) return INT64_MIN;
        const auto first = std::ranges::find(state.beside, index) - state.beside.begin();
        const Span& span = state.spans[first];
        return state.running[0].action == first ? state.spans[index].end_ns : span.end_ns;
    }

    void end_action(uint32_t rank, uint32_t index, int64_t now) {
        SimulatedRank& state = ranks_[rank];
        const Program& program = programs_[rank];
        Span& span = state.spans[index];
        span.end_ns = now;
        span.cpu_ns = now - std::max(span.begin_ns, end_beside(rank, index));
        ++done_;
        for (const uint32_t next : state.edges.ends.of(index)) {
            if (timeline_.early_update && is_report(program, {index, next})) continue;
            satisfied(rank, next, index, now);
        }
        const bool compute = program.actions[index].lane == Lane::compute;
        if (compute) {
            RunningPass& running = state.running_of(index);
            change_pair(rank, running, now, [&] { running.action = kNone; });
            running.computes = SimulatedRank::kFull;
            if (state.running[0].action == kNone && state.running[1].action == kNone) {
                share_cores(passes_ - 1, now);
            }
        }
        if (compute || order_ != CommunicationOrder::lanes) {
            go_on(rank, state.next_in_lane[index], index, now);
        }
        if (order_ == CommunicationOrder::serial) {
            go_on(rank, state.next_in_order[index], index, now);
        }
        if (!launched_.empty()) launch_next(rank, index, now, true);
    }

    const std::vector<Program>& programs_;
    const CostModel& costs_;
    const bool own_cores_;
    const int64_t copies_;
    CoreShare share_;
    int passes_ = 0;  ///< passes running now, without those of copies
    const CommunicationOrder order_;
    std::vector<SimulatedRank> ranks_;
    std::vector<uint32_t> base_;  ///< [rank] id of its first action; ranks + 1 entries
    Meetings meetings_;
    std::vector<Meeting> meeting_;
    std::vector<uint32_t> next_member_;  ///< [action id]
    std::vector<bool> entered_;          ///< [action id] has started; empty if nothing streams
    std::vector<bool> launched_;         ///< [action id] the next launch may start; likewise
    std::vector<int> rows_;  ///< [action id] pieces made or arrived; empty if nothing streams
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
