// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/pass_times.hpp"

#include "src/schedule/exchange_share.hpp"
#include "src/schedule/pass_inputs.hpp"
#include "src/schedule/simulated_rank.hpp"
#include "vocabpipe/validate.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace vocabpipe {

namespace {

using enum Op;

/// A pass of a pair: when it may begin at the earliest, and its time alone.
struct PairedPass {
    int64_t begin = 0, ns = 0, exchange_ns = 0;
};

/// When both passes of a pair end, of which the second begins after the first one.
std::pair<int64_t, int64_t> ends_of_pair(const PairedPass& first, const PairedPass& second) {
    const auto running = [](const PairedPass& of) {
        return RunningPass{.work = RunningPass::kFull * of.ns,
                           .since_ns = of.begin,
                           .computes = computing_permille(of.ns, of.exchange_ns)};
    };
    RunningPass one = running(first), other = running(second);
    const auto end = [](const RunningPass& pass, CoreShare share) {
        return pass.since_ns + pass.ns_left(RunningPass::kFull, share);
    };
    if (second.begin >= end(one, {})) return {end(one, {}), end(other, {})};
    one.work_until(second.begin, RunningPass::kFull, {});
    const CoreShare share = pair_share(one, other, {});
    const bool one_ends = end(one, share) <= end(other, share);
    RunningPass& longer = one_ends ? other : one;
    const int64_t earlier = end(one_ends ? one : other, share);
    longer.work_until(earlier, RunningPass::kFull, share);
    const int64_t later = end(longer, {});
    return one_ends ? std::pair(earlier, later) : std::pair(later, earlier);
}

/// Runs every rank as far as its inputs are ready. The time of an event is the end of its last
/// producer.
class Clock {
public:
    Clock(const Schedule& schedule, const PassCosts& costs, int64_t exchange_permille)
        : schedule_(schedule),
          costs_(costs),
          exchange_permille_(exchange_permille),
          inputs_(schedule, costs),
          events_(inputs_.events()),
          next_waiter_(static_cast<size_t>(schedule.ranks), kNobody),
          position_(static_cast<size_t>(schedule.ranks), 0),
          free_at_(static_cast<size_t>(schedule.ranks), 0),
          first_end_(static_cast<size_t>(schedule.ranks), kNever) {
        for (size_t e = 0; e < events_.size(); ++e) events_[e].remaining = inputs_.producers(e);
    }

    PassTimes run() {
        for (const std::vector<Pass>& list : schedule_.passes) {
            times_.begin.emplace_back(list.size());
            times_.end.emplace_back(list.size());
        }
        std::vector<int> ready;
        for (int rank = schedule_.ranks - 1; rank >= 0; --rank) ready.push_back(rank);
        do {
            while (!ready.empty()) {
                const int rank = ready.back();
                ready.pop_back();
                advance(rank, ready);
            }
        } while (end_first_alone(ready));
        for (int rank = 0; rank < schedule_.ranks; ++rank) {
            if (position_[static_cast<size_t>(rank)] < list(rank).size()) stuck(rank);
        }
        summarize();
        return std::move(times_);
    }

private:
    static constexpr int kNobody = -1;
    static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
    struct Event {
        int64_t at = 0;
        int remaining = 1;
        int first_waiter = kNobody;
    };

    const std::vector<Pass>& list(int rank) const {
        return schedule_.passes[static_cast<size_t>(rank)];
    }
    /// Whether the input is ready; if not, the rank is recorded as waiting for it. Raises `at` to
    /// its arrival.
    bool available(int rank, const Pass& pass, int64_t& at) {
        const PassInputs::Need input = inputs_.need(rank, pass);
        if (input.event == PassInputs::kNothing) return true;
        Event& event = events_[input.event];
        if (event.remaining > 0) {
            next_waiter_[static_cast<size_t>(rank)] = event.first_waiter;
            event.first_waiter = rank;
            return false;
        }
        at = std::max(at, event.at + input.latency);
        return true;
    }

    void finish(const Pass& pass, int64_t at, std::vector<int>& ready) {
        const size_t done = inputs_.produced(pass);
        if (done == PassInputs::kNothing) return;
        Event& event = events_[done];
        event.at = std::max(event.at, at);
        if (--event.remaining > 0) return;
        for (int waiter = event.first_waiter; waiter != kNobody;
             waiter = next_waiter_[static_cast<size_t>(waiter)]) {
            ready.push_back(waiter);
        }
    }

    void advance(int rank, std::vector<int>& ready) {
        const auto r = static_cast<size_t>(rank);
        const std::vector<Pass>& passes = list(rank);
        for (size_t& i = position_[r]; i < passes.size();) {
            int64_t at = free_at_[r];
            if (!available(rank, passes[i], at)) return;
            if (exchange_permille_ > 0 && passes[i].with_next && i + 1 < passes.size()) {
                if (!run_pair(rank, at, ready)) return;
                continue;
            }
            record(rank, at, at + costs_(rank, passes[i]), ready);
        }
    }

    /// The rank has run its next pass.
    void record(int rank, int64_t begin, int64_t end, std::vector<int>& ready) {
        const auto r = static_cast<size_t>(rank);
        const size_t i = position_[r]++;
        times_.begin[r][i] = begin;
        times_.end[r][i] = end;
        free_at_[r] = std::max(free_at_[r], end);
        finish(list(rank)[i], end, ready);
    }

    /// Runs both passes of the pair that the rank begins at `at`, if the second one's input is
    /// known.
    bool run_pair(int rank, int64_t at, std::vector<int>& ready) {
        const auto r = static_cast<size_t>(rank);
        const auto paired = [&](const Pass& pass, int64_t begin) {
            const int64_t ns = costs_(rank, pass);
            return PairedPass{begin, ns, exchange_share_ns(pass, ns, exchange_permille_)};
        };
        const size_t i = position_[r];
        const PairedPass first = paired(list(rank)[i], at);
        if (!available(rank, list(rank)[i + 1], at)) {
            first_end_[r] = first.begin + first.ns;
            return false;
        }
        first_end_[r] = kNever;
        const PairedPass second = paired(list(rank)[i + 1], at);
        const auto [end, second_end] = ends_of_pair(first, second);
        record(rank, first.begin, end, ready);
        record(rank, second.begin, second_end, ready);
        return true;
    }

    /// Where every rank waits, the first pass of a pair that ends first does so before the second
    /// one's input comes: that follows from the end of some first pass. False: none waits so.
    bool end_first_alone(std::vector<int>& ready) {
        const auto earliest = std::ranges::min_element(first_end_);
        const int64_t end = *earliest;
        if (end == kNever) return false;
        const auto rank = static_cast<int>(earliest - first_end_.begin());
        *earliest = kNever;
        const auto r = static_cast<size_t>(rank);
        const int64_t ns = costs_(rank, list(rank)[position_[r]]);
        record(rank, end - ns, end, ready);  // and still waits for the second one's input
        return true;
    }

    [[noreturn]] void stuck(int rank) const {
        const size_t i = position_[static_cast<size_t>(rank)];
        if (auto violation = find_violation(schedule_)) throw ScheduleError(*std::move(violation));
        throw ScheduleError({rank, static_cast<int>(i), to_string(list(rank)[i]),
                             "waits for a pass of an overlapped pair that waits for it"});
    }

    void summarize() {
        int64_t first = std::numeric_limits<int64_t>::max();
        int64_t last = 0;
        for (size_t r = 0; r < times_.begin.size(); ++r) {
            int64_t busy = 0, until = 0;
            for (size_t i = 0; i < times_.begin[r].size(); ++i) {
                const int64_t end = std::max(until, times_.end[r][i]);
                busy += end - std::max(until, times_.begin[r][i]);
                until = end;
            }
            times_.busy.push_back(busy);
            times_.span.push_back(0);
            if (times_.begin[r].empty()) continue;
            times_.span.back() = until - times_.begin[r].front();
            times_.largest_span = std::max(times_.largest_span, times_.span.back());
            first = std::min(first, times_.begin[r].front());
            last = std::max(last, until);
        }
        times_.makespan = std::max<int64_t>(0, last - first);
    }

    const Schedule& schedule_;
    const PassCosts& costs_;
    const int64_t exchange_permille_;
    const PassInputs inputs_;
    std::vector<Event> events_;
    std::vector<int> next_waiter_;
    std::vector<size_t> position_;
    std::vector<int64_t> free_at_;
    /// [rank] when the first pass of a pair ends alone, if the second one's input is not known yet.
    std::vector<int64_t> first_end_;
    PassTimes times_;
};

}  // namespace

PassTimes time_passes(const Schedule& schedule, const PassCosts& costs, int64_t exchange_permille) {
    return Clock(schedule, costs, exchange_permille).run();
}

std::vector<int> peak_chunks(const Schedule& schedule) {
    std::vector<int> peaks;
    for (const std::vector<Pass>& list : schedule.passes) {
        int alive = 0;
        int peak = 0;
        for (size_t i = 0; i < list.size(); ++i) {
            // The members of a pair all start before any of them ends.
            const bool paired = list[i].with_next && i + 1 < list.size();
            for (size_t k = i; k <= i + (paired ? 1 : 0); ++k) alive += list[k].op == F ? 1 : 0;
            peak = std::max(peak, alive);
            for (size_t k = i; k <= i + (paired ? 1 : 0); ++k) {
                alive -= list[k].op == W || list[k].op == B ? 1 : 0;
            }
            i += paired ? 1 : 0;
        }
        peaks.push_back(peak);
    }
    return peaks;
}

}  // namespace vocabpipe
