// SPDX-License-Identifier: Apache-2.0
#include "schedules/families.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/pass_times.hpp"

#include "schedules/placement.hpp"
#include "schedules/rank_list.hpp"
#include "schedules/zb_greedy.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

using enum Op;

// Qi et al. 2023 (arXiv 2401.10241), in closed form (docs/schedules.md). The gradient is sent after
// I, and W fills idle times. Each extra forward in the warm-up reduces the bubble and costs memory.
//
//   p=2, k=2, m=4, rank 1:  F0 | I0 F1 | I1 W0 F2 I2 W1 F3 I3 W2 W3
//
// At F = I = W = 1: step 3m+p-1, largest span 3m+2p-1-k. ZB(p): bubble in the span
// (p-1)(I+max(0, F-W)). Memory k microbatches on every rank. The rule needs m >= k; for p <= m < k
// it is ZB(m), and below p the list for p microbatches is cut.
//
// `warm_up` is at least that of the next rank; I_i comes after F_{warm_up+i-1}.
std::vector<Pass> list_of(const ScheduleOptions& options, int k, int warm_up, int rank) {
    const int m = std::max(options.microbatches, k);
    RankList list(rank, m, options.microbatches);
    for (int i = 0; i < warm_up; ++i) list.emit(F);
    for (int i = 0; i < k - warm_up; ++i) list.emit(I, F);
    while (list.emitted(W) < m) {
        list.emit(I);
        if (list.emitted(W) < list.emitted(I)) list.emit(W);
        list.emit(F);
    }
    return std::move(list).take();
}

/// Forwards before the first I on every rank, if I_0 takes as long as F_0.
std::vector<int> closed_form(int p, int k) {
    std::vector<int> warm_up;
    for (int rank = 0; rank < p; ++rank) {
        warm_up.push_back(p - rank + std::min(k - p, p - 1 - rank));
    }
    return warm_up;
}

/// The same from the costs: the forwards that end before I_0 of the rank below arrives, or
/// (`past_arrival`) start before it.
std::vector<int> by_costs(const ScheduleOptions& options, int k, bool past_arrival) {
    const int p = options.ranks;
    const PassCosts& costs = options.costs;
    const auto cost = [&](int rank, Op op) {
        return costs(rank, {op, static_cast<uint16_t>(rank), 0});
    };
    std::vector<int64_t> start(static_cast<size_t>(p), 0);  // of F_0
    for (int rank = 1; rank < p; ++rank) {
        const auto r = static_cast<size_t>(rank);
        start[r] = start[r - 1] + cost(rank - 1, F) + costs.hop;
    }
    std::vector<int> warm_up(static_cast<size_t>(p), 1);
    int64_t arrival = start.back() + cost(p - 1, F) + cost(p - 1, I) + costs.hop;
    for (int rank = p - 2; rank >= 0; --rank) {
        const auto r = static_cast<size_t>(rank);
        int64_t clock = start[r] + cost(rank, F);
        while (warm_up[r] < k &&
               (past_arrival ? clock < arrival : clock + cost(rank, F) <= arrival)) {
            clock += cost(rank, F);
            ++warm_up[r];
        }
        arrival = std::max(clock, arrival) + cost(rank, I) + costs.hop;
    }
    for (size_t r = 1; r < warm_up.size(); ++r) {
        warm_up[r] = std::max(1, std::min(warm_up[r], warm_up[r - 1] - 1));
    }
    return warm_up;
}

/// Keeps the fastest schedule it is given; ties go to the first.
class Fastest {
public:
    explicit Fastest(const ScheduleOptions& options) : options_(options) {}

    void consider(Schedule schedule) {
        const PassTimes times = time_passes(schedule, options_.costs);
        const std::pair made{times.makespan, times.largest_span};
        if (!best_.passes.empty() && made >= times_) return;
        best_ = std::move(schedule);
        times_ = made;
    }
    [[nodiscard]] Schedule take() && { return std::move(best_); }

private:
    const ScheduleOptions& options_;
    Schedule best_;
    std::pair<int64_t, int64_t> times_;
};

Schedule straight(const ScheduleOptions& options,
                  const std::function<std::vector<Pass>(int)>& list_of) {
    return transformer_schedule(options, Placement::straight, 1, list_of);
}

/// The fastest of the closed form, the two warm-ups by costs and the greedy rule. Ties go to the
/// closed form, and to k = 2p-1, enough for equal costs, over larger k.
Schedule with_cap(const ScheduleOptions& options, int limit) {
    const int p = options.ranks;
    const int cap = std::min(limit, std::max(options.microbatches, p));
    std::vector<std::pair<int, std::vector<int>>> candidates;  // k, warm-up per rank
    for (const int k : {std::min(cap, 2 * p - 1), cap}) {
        for (const auto& warm_up :
             {closed_form(p, k), by_costs(options, k, false), by_costs(options, k, true)}) {
            const std::pair candidate(k, warm_up);
            if (std::ranges::find(candidates, candidate) == candidates.end()) {
                candidates.push_back(candidate);
            }
        }
    }
    Fastest fastest(options);
    for (const auto& candidate : candidates) {
        fastest.consider(straight(options, [&](int rank) {
            const auto& [k, warm_up] = candidate;
            return list_of(options, k, warm_up[static_cast<size_t>(rank)], rank);
        }));
    }
    for (const GreedyChoice& choice : kGreedyChoices) {
        const auto lists = greedy_zero_bubble(options, cap, choice);
        fastest.consider(
            straight(options, [&](int rank) { return lists[static_cast<size_t>(rank)]; }));
    }
    return std::move(fastest).take();
}

}  // namespace

Schedule zb(const ScheduleOptions& options) {
    const int p = options.ranks;
    const int k = options.rule.memory_limit == 0 ? p : options.rule.memory_limit;
    if (k < p) {
        throw UsageError("RuleOptions::memory_limit " + std::to_string(k) + ": must be at least " +
                         std::to_string(p) +
                         ", because zb keeps one microbatch in flight for each of the " +
                         std::to_string(p) + " ranks; V schedules need less");
    }
    return with_cap(options, k);
}

Schedule zb_h1(const ScheduleOptions& options) {
    return with_cap(options, options.ranks);
}

Schedule zb_h2(const ScheduleOptions& options) {
    return with_cap(options, 2 * options.ranks);
}

}  // namespace vocabpipe
