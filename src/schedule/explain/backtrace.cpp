// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/explain/backtrace.hpp"

#include "src/schedule/action_costs.hpp"
#include "src/schedule/rows_of_wait.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace vocabpipe::explaining {

/// Everything after `cursor_ns` waited for `place`.
struct Backtrace::Walk {
    Place place;
    int64_t cursor_ns = 0;
    std::string why;  ///< why `place` is on the path
    std::vector<Stretch> stretches;

    void add(int64_t begin_ns, Cause cause, std::string reason) {
        if (begin_ns < cursor_ns) {
            stretches.push_back({begin_ns, cursor_ns, cause, place, std::move(reason)});
        }
        cursor_ns = std::min(cursor_ns, begin_ns);
    }
};

Backtrace::Backtrace(const Timeline& timeline, const std::vector<Program>& programs)
    : programs_(programs),
      spans_(timeline, programs),
      index_(programs.size()),
      meetings_(programs) {
    first_begin_ns_ = std::numeric_limits<int64_t>::max();
    last_end_ns_ = std::numeric_limits<int64_t>::min();
    first_member_.assign(meetings_.count() + 1, 0);
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        const Program& program = programs[rank];
        const size_t count = program.actions.size();
        RankIndex& index = index_[rank];
        index.first.assign(count + 1, 0);
        for (const Edge& edge : program.edges) ++index.first[edge.after + 1];
        for (size_t i = 0; i < count; ++i) index.first[i + 1] += index.first[i];
        index.before.resize(program.edges.size());
        std::vector<uint32_t> fill(index.first.begin(), index.first.end() - 1);
        index.streamed.assign(program.edges.size(), false);
        size_t next = 0;
        for (uint32_t i = 0; i < program.edges.size(); ++i) {
            const uint32_t at = fill[program.edges[i].after]++;
            index.before[at] = program.edges[i].before;
            if (next == program.streamed.size() || program.streamed[next] != i) continue;
            index.streamed[at] = true;
            ++next;
        }
        index.in_lane.assign(count, kNoAction);
        std::array<uint32_t, kLanes> last;
        last.fill(kNoAction);
        for (uint32_t i = 0; i < count; ++i) {
            const Action& action = program.actions[i];
            uint32_t& previous = last[static_cast<size_t>(action.lane)];
            if (action.pair_member == 2) {
                index.first_of.resize(count, kNoAction);
                index.first_of[i] = previous;
                index.in_lane[i] = index.in_lane[previous];
            } else {
                index.in_lane[i] = previous;
            }
            previous = i;
            if (is_communication(action.what)) ++first_member_[meetings_.of(action) + 1];
            const Span* span = spans_.of(rank, i);
            if (span == nullptr) continue;
            first_begin_ns_ = std::min(first_begin_ns_, span->begin_ns);
            if (span->end_ns > last_end_ns_) {
                last_end_ns_ = span->end_ns;
                last_ = {static_cast<int>(rank), i};
            }
        }
    }
    for (const PieceWait& wait : timeline.piece_waits) index_[wait.rank].waits.push_back(wait);
    for (size_t i = 1; i < first_member_.size(); ++i) first_member_[i] += first_member_[i - 1];
    members_.resize(first_member_.back());
    std::vector<uint32_t> fill(first_member_.begin(), first_member_.end() - 1);
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        for (uint32_t i = 0; i < programs[rank].actions.size(); ++i) {
            const Action& action = programs[rank].actions[i];
            if (!is_communication(action.what)) continue;
            members_[fill[meetings_.of(action)]++] = {static_cast<int>(rank), i};
        }
    }
    for (size_t rank = 0; rank < programs.size(); ++rank) find_hard_times(static_cast<int>(rank));
}

template <typename Visit>
void Backtrace::each_participant(Place place, Visit&& visit) const {
    if (!is_communication(action_of(place).what)) return visit(place);
    const uint32_t meeting = meetings_.of(action_of(place));
    for (uint32_t i = first_member_[meeting]; i < first_member_[meeting + 1]; ++i) {
        if (span_of(members_[i]) != nullptr) visit(members_[i]);
    }
}

/// In executed runs a message may be sent before its receiver is ready, so participants that came
/// after `before_ns` did not delay this place. If several came last at once, it is the one that
/// could least have come earlier.
Place Backtrace::last_participant(Place place, int64_t before_ns) const {
    Place last = place;
    each_participant(place, [&](Place other) {
        const int64_t ready = ready_ns(*span_of(other));
        const int64_t latest = ready_ns(*span_of(last));
        if (ready > before_ns || ready < latest) return;
        if (ready > latest || hard_ns(other) > hard_ns(last)) last = other;
    });
    return last;
}

Place Backtrace::hardest_participant(Place place) const {
    Place hardest = place;
    each_participant(place, [&](Place other) {
        if (hard_ns(other) > hard_ns(hardest)) hardest = other;
    });
    return hardest;
}

/// The reason for an edge. Data edges join users of one buffer; reuse edges join a new buffer's
/// first user and a user of the buffer in whose place it lies; all others join a receive and an
/// earlier pass.
Cause Backtrace::kind_of(int rank, uint32_t before, uint32_t after) const {
    const Program& program = programs_[static_cast<size_t>(rank)];
    const Action& a = program.actions[before];
    const Action& b = program.actions[after];
    bool reuses = false;
    for (const uint32_t mine : program.operands_of(b)) {
        if (mine == kNoBuffer) continue;
        const Buffer& mine_at = program.buffers[mine];
        for (const uint32_t other : program.operands_of(a)) {
            if (other == kNoBuffer) continue;
            if (other == mine) return Cause::compute;
            const Buffer& other_at = program.buffers[other];
            reuses = reuses || (mine_at.space == Buffer::Space::arena &&
                                other_at.space == Buffer::Space::arena && mine_at.born == after &&
                                mine_at.offset < other_at.offset + other_at.bytes &&
                                other_at.offset < mine_at.offset + mine_at.bytes);
        }
    }
    if (reuses) return Cause::memory;
    return b.what == Do::receive && a.lane == Lane::compute ? Cause::posting : Cause::compute;
}

/// Whether `a` is preferred: the later one; at equal times a pass, because then its rank was not
/// idle; then the first in the program.
bool Backtrace::better(int rank, const Need& a, const Need& b) const {
    if (b.action == kNoAction || a.at_ns != b.at_ns) {
        return b.action == kNoAction || a.at_ns > b.at_ns;
    }
    const std::vector<Action>& actions = programs_[static_cast<size_t>(rank)].actions;
    const bool pass_a = actions[a.action].lane == Lane::compute;
    const bool pass_b = actions[b.action].lane == Lane::compute;
    return pass_a != pass_b ? pass_a : a.action < b.action;
}

/// Adds the time that the place itself took and moves to the participant that came last.
void Backtrace::took(Walk& walk) const {
    const Action& action = action_of(walk.place);
    if (!is_communication(action.what)) {
        const int64_t begin = span_of(walk.place)->begin_ns;
        const std::vector<PieceWait>& waits = index_[static_cast<size_t>(walk.place.rank)].waits;
        // Passes of a rank do not overlap, so their waits are in order, too.
        auto after = std::ranges::upper_bound(waits, walk.cursor_ns, {}, &PieceWait::end_ns);
        while (after != waits.begin() && (--after)->begin_ns >= begin) {
            const PieceWait& wait = *after;
            walk.add(wait.end_ns, Cause::compute, walk.why);
            const Place source{walk.place.rank, wait.source};
            const Action& moves = action_of(source);
            walk.add(wait.begin_ns,
                     traits(moves.what).point_to_point ? Cause::transfer : Cause::collective,
                     name_of(walk.place) + " waited for " + rows_of_wait(program_of(source), wait) +
                         ": " + name_of(source));
        }
        walk.add(begin, action.what == Do::pass ? Cause::compute : Cause::local,
                 std::move(walk.why));
        return;
    }
    const Place last = last_participant(walk.place, walk.cursor_ns);
    const bool point_to_point = traits(action.what).point_to_point;
    walk.place = last;
    if (!point_to_point) {
        walk.why += "; rank " + std::to_string(last.rank) + " came last";
    } else if (action_of(last).what == Do::receive) {
        walk.why += "; its receiver came last";
    }
    walk.add(ready_ns(*span_of(last)), point_to_point ? Cause::transfer : Cause::collective,
             std::move(walk.why));
}

template <typename Visit>
void Backtrace::each_need(Place place, Visit&& visit) const {
    const auto rank = static_cast<size_t>(place.rank);
    const RankIndex& index = index_[rank];
    const auto visit_lane = [&](uint32_t before) {
        const Span* const span = before == kNoAction ? nullptr : spans_.of(rank, before);
        if (span == nullptr) return;
        const bool compute = span->lane == Lane::compute;
        visit(Need{before, compute ? span->end_ns : ready_ns(*span), true, Cause::compute});
    };
    const uint32_t before = index.in_lane[place.action];
    visit_lane(before);
    if (before != kNoAction && !index.first_of.empty()) visit_lane(index.first_of[before]);
    for (uint32_t i = index.first[place.action]; i < index.first[place.action + 1]; ++i) {
        const Span* span = spans_.of(rank, index.before[i]);
        if (span == nullptr) continue;
        // The place began with the first rows; nothing more is known about their arrival.
        const int64_t came =
            index.streamed[i] ? std::min(span->end_ns, ready_ns(*span_of(place))) : span->end_ns;
        visit(
            Need{index.before[i], came, false, kind_of(place.rank, index.before[i], place.action)});
    }
}

Backtrace::Need Backtrace::last_need(Place place, int64_t before_ns) const {
    Need last;
    each_need(place, [&](const Need& need) {
        if (need.at_ns <= before_ns && better(place.rank, need, last)) last = need;
    });
    return last;
}

Backtrace::Need Backtrace::hard_need(Place place) const {
    Need hard;
    const int64_t ready = ready_ns(*span_of(place));
    each_need(place, [&](Need need) {
        if (need.is_soft() || need.at_ns > ready) return;
        const Place before{place.rank, need.action};
        const bool passes_on = need.lane && action_of(before).lane != Lane::compute;
        if (passes_on) need.at_ns = hard_ns(before);
        if (better(place.rank, need, hard)) hard = need;
    });
    return hard;
}

/// In program order, so that the previous action of a lane is done first.
void Backtrace::find_hard_times(int rank) {
    RankIndex& index = index_[static_cast<size_t>(rank)];
    index.hard_ns.assign(index.in_lane.size(), first_begin_ns_);
    for (uint32_t i = 0; i < index.hard_ns.size(); ++i) {
        if (span_of({rank, i}) == nullptr) continue;
        index.hard_ns[i] = std::max(first_begin_ns_, hard_need({rank, i}).at_ns);
    }
}

/// Moves to the end of the action that `from` needed. In a communication lane, whose actions start
/// in order, `from` only waits for the start of the previous one; then it goes on to what that one
/// needed.
bool Backtrace::go_to(Walk& walk, Place from, Need need) const {
    for (;;) {
        if (need.action == kNoAction) return false;
        walk.place = {from.rank, need.action};
        if (!need.lane || action_of(walk.place).lane == Lane::compute) break;
        from = walk.place;
        need = hard_need(from);
    }
    const std::string name = name_of(from);
    walk.why = need.lane ? "ran before " + name : "gives " + name + " its input";
    took(walk);
    return true;
}

/// Moves to the action that the place waited for, if any.
bool Backtrace::waited(Walk& walk) const {
    const Place start = walk.place;
    Need need = last_need(start, walk.cursor_ns);
    Place waiting = start;
    for (;; need = last_need(waiting, walk.cursor_ns)) {
        const std::string name = name_of(waiting);
        if (need.action == kNoAction) {
            walk.add(first_begin_ns_, Cause::overhead, name + " had nothing to wait for");
            return false;
        }
        walk.add(need.at_ns, Cause::overhead, name + " could have begun");
        const Place before{waiting.rank, need.action};
        if (need.is_soft()) break;
        if (!need.lane || action_of(before).lane == Lane::compute) {
            return go_to(walk, waiting, need);
        }
        waiting = before;
    }
    // The participant that would come last if memory were free and receives posted.
    const Place hardest = hardest_participant(start);
    const std::string blocker = name_of({waiting.rank, need.action});
    walk.add(hard_ns(hardest), need.cause,
             need.cause == Cause::memory
                 ? name_of(waiting) + " needs memory that " + blocker + " still used"
                 : name_of(waiting) + " is posted after " + blocker);
    return go_to(walk, hardest, hard_need(hardest));
}

std::vector<Stretch> Backtrace::from_end_of(Place place) const {
    Walk walk{place, span_of(place)->end_ns, "ended last", {}};
    took(walk);
    while (walk.cursor_ns > first_begin_ns_ && waited(walk)) {
    }
    return std::move(walk.stretches);
}

std::vector<Stretch> Backtrace::from_begin_of(Place place, int64_t until_ns) const {
    Walk walk{place, span_of(place)->begin_ns, "", {}};
    while (walk.cursor_ns > until_ns && waited(walk)) {
    }
    return std::move(walk.stretches);
}

}  // namespace vocabpipe::explaining
