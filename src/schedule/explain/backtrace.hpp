// SPDX-License-Identifier: Apache-2.0
// Walks from an action back to the actions that it waited for, across ranks. explain.cpp makes the
// critical path and the chain of an idle time from it.
#pragma once

#include "src/schedule/meetings.hpp"
#include "src/schedule/spans_by_action.hpp"
#include "vocabpipe/explain.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe::explaining {

/// An action of a rank.
struct Place {
    int rank = 0;
    uint32_t action = kNoAction;
};

/// A stretch of time with one cause, in the clock of the timeline, and its place.
struct Stretch {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    Cause cause = Cause::compute;
    Place place;
    std::string why;
};

class Backtrace {
public:
    /// Timeline and programs must outlive this.
    Backtrace(const Timeline& timeline, const std::vector<Program>& programs);

    [[nodiscard]] int64_t first_begin_ns() const { return first_begin_ns_; }
    [[nodiscard]] int64_t last_end_ns() const { return last_end_ns_; }
    [[nodiscard]] const Span* span_of(Place place) const {
        return spans_.of(static_cast<size_t>(place.rank), place.action);
    }
    /// The action that ends last; ties go to the lowest rank, then the earliest in its program.
    [[nodiscard]] Place last() const { return last_; }

    /// All stretches from the end of `place` back to the first begin, latest first.
    [[nodiscard]] std::vector<Stretch> from_end_of(Place place) const;
    /// The same from the begin of `place` back to `until_ns`: why it did not begin earlier.
    [[nodiscard]] std::vector<Stretch> from_begin_of(Place place, int64_t until_ns) const;

private:
    struct Walk;
    /// Index of the edges and lanes of one rank.
    struct RankIndex {
        std::vector<uint32_t> first;   ///< [action] where its predecessors begin in `before`
        std::vector<uint32_t> before;  ///< predecessors by edges
        std::vector<bool> streamed;    ///< [index into before] whether the edge is streamed
        std::vector<PieceWait> waits;  ///< waits of its passes for pieces, in order
        /// [action] previous action in its lane, or kNoAction. Before both passes of a pair it is
        /// the same one, and before the next pass the second of them.
        std::vector<uint32_t> in_lane;
        std::vector<uint32_t> first_of;  ///< [action] of a second pass its pair's first; or empty
        std::vector<int64_t> hard_ns;    ///< [action] when it would have been ready with enough
                                         ///< memory and receives posted early
    };
    /// An action that another one waited for, and when that came.
    struct Need {
        uint32_t action = kNoAction;
        int64_t at_ns = INT64_MIN;
        bool lane = false;             ///< it is the previous action in the lane
        Cause cause = Cause::compute;  ///< memory or posting if that is the only reason

        [[nodiscard]] bool is_soft() const {
            return cause == Cause::memory || cause == Cause::posting;
        }
    };

    [[nodiscard]] const Program& program_of(Place place) const {
        return programs_[static_cast<size_t>(place.rank)];
    }
    [[nodiscard]] const Action& action_of(Place place) const {
        return program_of(place).actions[place.action];
    }
    [[nodiscard]] std::string name_of(Place place) const {
        return program_of(place).name_of(action_of(place));
    }
    [[nodiscard]] static int64_t ready_ns(const Span& span) {
        return span.ready_ns >= 0 ? span.ready_ns : span.begin_ns;
    }
    /// The last need that came no later than `before_ns`; the action cannot have waited for later
    /// ones.
    [[nodiscard]] Need last_need(Place place, int64_t before_ns) const;
    /// The need that determines hard_ns.
    [[nodiscard]] Need hard_need(Place place) const;
    template <typename Visit>
    void each_need(Place place, Visit&& visit) const;
    void find_hard_times(int rank);
    [[nodiscard]] int64_t hard_ns(Place place) const {
        return index_[static_cast<size_t>(place.rank)].hard_ns[place.action];
    }
    template <typename Visit>
    void each_participant(Place place, Visit&& visit) const;
    [[nodiscard]] Place last_participant(Place place, int64_t before_ns) const;
    [[nodiscard]] Place hardest_participant(Place place) const;
    [[nodiscard]] Cause kind_of(int rank, uint32_t before, uint32_t after) const;
    [[nodiscard]] bool better(int rank, const Need& a, const Need& b) const;
    void took(Walk& walk) const;
    bool waited(Walk& walk) const;
    bool go_to(Walk& walk, Place from, Need need) const;

    const std::vector<Program>& programs_;
    SpansByAction spans_;
    std::vector<RankIndex> index_;
    Meetings meetings_;
    std::vector<uint32_t> first_member_;  ///< [meeting] where its members begin
    std::vector<Place> members_;
    int64_t first_begin_ns_ = 0;
    int64_t last_end_ns_ = 0;
    Place last_;
};

}  // namespace vocabpipe::explaining
