// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/pass_times.hpp"

#include "src/schedule/pass_inputs.hpp"
#include "vocabpipe/validate.hpp"

#include <algorithm>
#include <limits>

namespace vocabpipe {

namespace {

using enum Op;

/// Runs every rank as far as its inputs are ready. The time of an event is the end of its last
/// producer.
class Clock {
public:
    Clock(const Schedule& schedule, const PassCosts& costs)
        : schedule_(schedule),
          costs_(costs),
          inputs_(schedule, costs),
          events_(inputs_.events()),
          next_waiter_(static_cast<size_t>(schedule.ranks), kNobody),
          position_(static_cast<size_t>(schedule.ranks), 0),
          free_at_(static_cast<size_t>(schedule.ranks), 0) {
        for (size_t e = 0; e < events_.size(); ++e) events_[e].remaining = inputs_.producers(e);
    }

    PassTimes run() {
        for (const std::vector<Pass>& list : schedule_.passes) {
            times_.begin.emplace_back(list.size());
            times_.end.emplace_back(list.size());
        }
        std::vector<int> ready;
        for (int rank = schedule_.ranks - 1; rank >= 0; --rank) ready.push_back(rank);
        while (!ready.empty()) {
            const int rank = ready.back();
            ready.pop_back();
            advance(rank, ready);
        }
        for (int rank = 0; rank < schedule_.ranks; ++rank) {
            if (position_[static_cast<size_t>(rank)] < list(rank).size()) stuck(rank);
        }
        summarize();
        return std::move(times_);
    }

private:
    static constexpr int kNobody = -1;
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
            const int64_t end = at + costs_(rank, passes[i]);
            times_.begin[r][i] = at;
            times_.end[r][i] = end;
            finish(passes[i], end, ready);
            free_at_[r] = end;
            ++i;
        }
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
            int64_t busy = 0;
            for (size_t i = 0; i < times_.begin[r].size(); ++i) {
                busy += times_.end[r][i] - times_.begin[r][i];
            }
            times_.busy.push_back(busy);
            times_.span.push_back(0);
            if (times_.begin[r].empty()) continue;
            times_.span.back() = times_.end[r].back() - times_.begin[r].front();
            times_.largest_span = std::max(times_.largest_span, times_.span.back());
            first = std::min(first, times_.begin[r].front());
            last = std::max(last, times_.end[r].back());
        }
        times_.makespan = std::max<int64_t>(0, last - first);
    }

    const Schedule& schedule_;
    const PassCosts& costs_;
    const PassInputs inputs_;
    std::vector<Event> events_;
    std::vector<int> next_waiter_;
    std::vector<size_t> position_;
    std::vector<int64_t> free_at_;
    PassTimes times_;
};

}  // namespace

PassTimes time_passes(const Schedule& schedule, const PassCosts& costs) {
    return Clock(schedule, costs).run();
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
