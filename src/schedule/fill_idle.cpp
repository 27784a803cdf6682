// SPDX-License-Identifier: Apache-2.0
// All ranks run in simulated time. A rank that wakes decides once: it starts its next pass, a
// filler, or a later pass that fits into the hole, or it sleeps until one of these can start.
#include "src/schedule/fill_idle.hpp"

#include "src/schedule/pass_inputs.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <queue>
#include <utility>

namespace vocabpipe {

namespace {

using enum Op;

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
constexpr size_t kWindow = 6;  ///< passes looked ahead: about one microbatch

class IdleFiller {
public:
    IdleFiller(const Schedule& schedule, const PassCosts& costs, const FillOptions& options)
        : schedule_(schedule),
          costs_(costs),
          options_(options),
          inputs_(schedule, costs),
          events_(inputs_.events()),
          ranks_(static_cast<size_t>(schedule.ranks)) {
        for (size_t e = 0; e < events_.size(); ++e) events_[e].remaining = inputs_.producers(e);
        for (int rank = 0; rank < schedule.ranks; ++rank) {
            RankState& state = of(rank);
            for (const Pass& pass : schedule.passes[static_cast<size_t>(rank)]) {
                if (pass.op == T && is_filler(T)) {
                    state.fillers[kT].push_back(pass);
                } else if (pass.op == G) {
                    state.fillers[kG].push_back(pass);
                } else if (pass.op != W) {
                    state.list.push_back(pass);  // its I queues the W
                }
            }
            total_ += schedule.passes[static_cast<size_t>(rank)].size();
            state.done.assign(state.list.size(), false);
        }
    }

    std::optional<Schedule> run() {
        for (int rank = 0; rank < schedule_.ranks; ++rank) sleep_until(rank, 0);
        while (!wake_.empty()) {
            const Wake wake = wake_.top();
            wake_.pop();
            RankState& state = of(wake.rank);
            if (wake.decision != state.decisions) continue;  // outdated: it has decided since
            ++state.decisions;
            decide(wake.rank, wake.at);
        }
        size_t placed = 0;
        for (const RankState& state : ranks_) placed += state.result.size();
        if (placed != total_) return std::nullopt;
        Schedule result = schedule_;
        for (size_t rank = 0; rank < ranks_.size(); ++rank) {
            result.passes[rank] = std::move(ranks_[rank].result);
        }
        return result;
    }

private:
    enum Kind : uint8_t { kW, kT, kG, kKinds };

    /// A rank wakes at the first of several events; the other wakes then belong to an old decision.
    struct Wake {
        int64_t at = 0;
        int rank = 0;
        uint64_t decision = 0;
        bool operator>(const Wake& other) const {
            return std::pair(at, rank) > std::pair(other.at, other.rank);
        }
    };
    struct Event {
        int64_t at = 0;  ///< when the last producer ends; known once all have started
        int remaining = 1;
        std::vector<Wake> asleep;  ///< to wake when it becomes known
    };
    struct RankState {
        std::vector<Pass> list;  ///< all passes except fillers, in order
        std::vector<bool> done;
        size_t next = 0;
        std::array<std::deque<Pass>, kKinds> fillers;
        uint64_t decisions = 0;
        int alive = 0;       ///< chunks
        int exp_logits = 0;  ///< S without T
        std::vector<Pass> result;
    };

    RankState& of(int rank) { return ranks_[static_cast<size_t>(rank)]; }
    [[nodiscard]] bool is_filler(Op op) const {
        return op == W || op == G || (op == T && schedule_.barriers == Barriers::one);
    }

    /// When the input of a pass arrives; kUnknown if its producer has not started.
    [[nodiscard]] int64_t arrival(int rank, const Pass& pass) const {
        const PassInputs::Need need = inputs_.need(rank, pass);
        if (need.event == PassInputs::kNothing) return 0;
        const Event& event = events_[need.event];
        return event.remaining > 0 ? kUnknown : event.at + need.latency;
    }

    void decide(int rank, int64_t now) {
        RankState& state = of(rank);
        while (state.next < state.list.size() && state.done[state.next]) ++state.next;
        const bool more = state.next < state.list.size();
        const int64_t due = more ? arrival(rank, state.list[state.next]) : kUnknown;
        if (more && due <= now) {
            const Pass& pass = state.list[state.next];
            if (has_room(state, rank, pass)) return start_listed(rank, state.next, now);
            // Only a filler frees memory.
            const Kind kind = pass.op == F ? kW : kT;
            if (const int64_t at = ready_at(rank, kind); at <= now) {
                return start_filler(rank, kind, now);
            } else if (at != kUnknown) {
                return sleep_until(rank, at);
            }
            if (kind == kT && !state.fillers[kT].empty()) {
                return sleep_on(rank, state.fillers[kT].front());
            }
            return;  // stuck
        }
        const int64_t hole = due == kUnknown ? kUnknown : due - now;
        if (options_.look_ahead && more && hole != kUnknown) {
            const size_t end = std::min(state.list.size(), state.next + kWindow);
            for (size_t i = state.next + 1; i < end; ++i) {
                // An R waits for no other rank; an early one would only hold memory longer.
                if (state.done[i] || state.list[i].op == R) continue;
                if (costs_(rank, state.list[i]) > hole) continue;
                if (arrival(rank, state.list[i]) > now || !may_overtake(state, i)) continue;
                if (has_room(state, rank, state.list[i])) return start_listed(rank, i, now);
            }
        }
        if (const Kind kind = best_filler(rank, now, hole); kind != kKinds) {
            return start_filler(rank, kind, now);
        }
        // Nothing to do: sleep until the next pass or filler can start.
        int64_t until = due;
        for (const Kind kind : {kW, kT, kG}) until = std::min(until, later(rank, kind, now));
        if (until != kUnknown) sleep_until(rank, until);
        if (more && due == kUnknown) sleep_on(rank, state.list[state.next]);
        for (const Kind kind : {kT, kG}) {
            if (!state.fillers[kind].empty()) sleep_on(rank, state.fillers[kind].front());
        }
    }

    /// A pass may overtake others of its rank unless one of them makes its input.
    [[nodiscard]] static bool may_overtake(const RankState& state, size_t i) {
        const Pass& pass = state.list[i];
        for (size_t k = state.next; k < i; ++k) {
            if (state.done[k]) continue;
            const Pass& before = state.list[k];
            if (before.op == pass.op && before.stage == pass.stage) return false;  // keep the order
            const bool of_stages = traits(before.op).has_stage && traits(pass.op).has_stage;
            if (of_stages && before.stage == pass.stage && before.microbatch == pass.microbatch) {
                return false;  // F, R and B or I
            }
        }
        return true;
    }

    [[nodiscard]] bool has_room(const RankState& state, int rank, const Pass& pass) const {
        if (pass.op == F) {
            return state.alive < options_.chunk_limit[static_cast<size_t>(rank)] ||
                   schedule_.forward_only();
        }
        return pass.op != S || !is_filler(T) || state.exp_logits < options_.exp_logits_limit;
    }

    /// When the first filler of a kind could start; kUnknown if that is not known or there is none.
    [[nodiscard]] int64_t ready_at(int rank, Kind kind) {
        const std::deque<Pass>& queue = of(rank).fillers[kind];
        if (queue.empty()) return kUnknown;
        return kind == kW ? 0 : arrival(rank, queue.front());
    }
    int64_t later(int rank, Kind kind, int64_t now) {
        const int64_t at = ready_at(rank, kind);
        return at > now ? at : kUnknown;
    }

    /// The longest filler that fits into the hole; if none does, the shortest, if enough of it
    /// fits.
    Kind best_filler(int rank, int64_t now, int64_t hole) {
        Kind fits = kKinds;
        Kind shortest = kKinds;
        int64_t fitting_cost = -1;
        int64_t shortest_cost = kUnknown;
        for (const Kind kind : {kW, kT, kG}) {
            if (ready_at(rank, kind) > now) continue;
            const int64_t cost = costs_(rank, of(rank).fillers[kind].front());
            if (cost <= hole && cost > fitting_cost) {
                fits = kind;
                fitting_cost = cost;
            }
            if (cost < shortest_cost) {
                shortest = kind;
                shortest_cost = cost;
            }
        }
        if (fits != kKinds || shortest == kKinds) return fits;
        return 100 * hole >= options_.overrun_percent * shortest_cost ? shortest : kKinds;
    }

    void start_listed(int rank, size_t i, int64_t now) {
        RankState& state = of(rank);
        const Pass pass = state.list[i];
        state.done[i] = true;
        if (pass.op == F) ++state.alive;
        if (pass.op == B) --state.alive;
        if (pass.op == S) ++state.exp_logits;
        if (pass.op == T) --state.exp_logits;
        start(rank, pass, now);
        if (pass.op == I) state.fillers[kW].push_back({W, pass.stage, pass.microbatch});
    }

    void start_filler(int rank, Kind kind, int64_t now) {
        RankState& state = of(rank);
        const Pass pass = state.fillers[kind].front();
        state.fillers[kind].pop_front();
        if (kind == kW) --state.alive;
        if (kind == kT) --state.exp_logits;
        start(rank, pass, now);
    }

    void start(int rank, const Pass& pass, int64_t now) {
        const int64_t end = now + costs_(rank, pass);
        of(rank).result.push_back({pass.op, pass.stage, pass.microbatch});
        sleep_until(rank, end);
        const size_t done = inputs_.produced(pass);
        if (done == PassInputs::kNothing) return;
        Event& event = events_[done];
        event.at = std::max(event.at, end);
        if (--event.remaining > 0) return;
        // The time is known from now on; the woken rank checks whether it has come.
        for (const Wake& waiting : event.asleep) {
            wake_.push({now, waiting.rank, waiting.decision});
        }
        event.asleep.clear();
    }

    void sleep_until(int rank, int64_t at) { wake_.push({at, rank, of(rank).decisions}); }
    void sleep_on(int rank, const Pass& pass) {
        const PassInputs::Need need = inputs_.need(rank, pass);
        if (need.event == PassInputs::kNothing) return;
        Event& event = events_[need.event];
        if (event.remaining > 0) event.asleep.push_back({0, rank, of(rank).decisions});
    }

    const Schedule& schedule_;
    const PassCosts& costs_;
    const FillOptions& options_;
    PassInputs inputs_;
    std::vector<Event> events_;
    std::vector<RankState> ranks_;
    size_t total_ = 0;
    std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wake_;
};

}  // namespace

std::optional<Schedule> fill_idle(const Schedule& schedule, const PassCosts& costs,
                                  const FillOptions& options) {
    return IdleFiller(schedule, costs, options).run();
}

}  // namespace vocabpipe
