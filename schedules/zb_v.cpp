// SPDX-License-Identifier: Apache-2.0
#include "schedules/families.hpp"

#include "schedules/chunk_list.hpp"
#include "schedules/placement.hpp"
#include "schedules/v_pattern.hpp"
#include "schedules/v_pattern_refine.hpp"
#include "schedules/zb_v_greedy.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

using enum Op;

/// Most passes that the search may time: about 20 ms on one core.
constexpr int64_t kMostRefined = 2'000'000;

// Qi et al. 2023 (arXiv 2401.10241): the handwritten list of torch's ScheduleZBVZeroBubble.
//
//   p=2, m=3, rank 0 (stages 0 and 3):
//   0F0 0F1 0F2 | 3F0 3I0 3W0 3F1 3I1 3W1 | 0I0 0W0 3F2 3I2 3W2 | 0I1 0W1 0I2 0W2
//
// At F = I = W = 1: largest span 6m, step 6m+p-1, memory 2p chunks on every rank. The rule needs
// m >= 2p-1; below that its list for 2p-1 microbatches is cut.
std::vector<Pass> list_of(const ScheduleOptions& options, int rank) {
    constexpr int kDown = 0;  // the chunk on the way down the ranks, holding stage r
    constexpr int kUp = 1;    // on the way up again, stage 2p-1-r
    const int p = options.ranks;
    ChunkList list({rank, 2 * p - 1 - rank}, std::max(options.microbatches, 2 * p - 1));
    const auto forward_and_backward_up = [&] {
        list.emit(F, kUp);
        list.emit(I, kUp);
        list.emit(W, kUp);
    };
    for (int i = 0; i < 2 * (p - rank) - 1; ++i) list.emit(F, kDown);
    for (int i = 0; i < rank; ++i) {
        list.emit(F, kUp);
        list.emit(F, kDown);
    }
    for (int i = 0; i < p - rank; ++i) forward_and_backward_up();
    while (!list.done(F, kUp)) {
        list.emit(F, kDown);
        list.emit(I, kDown);
        list.emit(W, kDown);
        forward_and_backward_up();
    }
    for (int i = 0; i < rank; ++i) {
        list.emit(I, kDown);
        list.emit(I, kUp);
    }
    for (int i = 0; i < p - rank; ++i) {
        list.emit(I, kDown);
        list.emit(W, kDown);
    }
    while (!list.done(W, kUp)) list.emit(W, kUp);
    while (!list.done(W, kDown)) list.emit(W, kDown);
    return drop_microbatches(std::move(list).take(), options.microbatches);
}

using namespace v_pattern;

/// The handwritten list as a row, for the search. Its microbatches are in order.
Row row_of(const std::vector<Pass>& list, int rank) {
    Row row;
    row.reserve(list.size());
    for (const Pass& pass : list) {
        const bool down = pass.stage == rank;
        const Kind kind = pass.op == F   ? (down ? F0 : F1)
                          : pass.op == I ? (down ? I0 : I1)
                                         : (down ? W0 : W1);
        row.push_back({0, kind});
    }
    return row;
}

/// Keeps the shortest rows it is given; ties go to the first.
class Shortest {
public:
    explicit Shortest(const Costs& costs) : costs_(costs) {}

    void consider(Rows rows) {
        if (!clock_.run(rows, costs_)) return;
        const std::pair made{clock_.makespan(), clock_.largest_span()};
        if (!best_.empty() && made >= times_) return;
        best_ = std::move(rows);
        times_ = made;
    }
    [[nodiscard]] const Rows& best() const { return best_; }

private:
    const Costs& costs_;
    Clock clock_;
    Rows best_;
    std::pair<int64_t, int64_t> times_;
};

}  // namespace

Schedule zb_v(const ScheduleOptions& options) {
    const int p = options.ranks;
    const int limit = 2 * p;
    const Costs costs = Costs::of(options);
    const auto by_hand = [&](int rank) { return list_of(options, rank); };
    // The handwritten list is for passes that all take the same time; forwards have only one order.
    if (options.forward_only || costs.alike()) {
        return transformer_schedule(options, Placement::v_shape, 2, by_hand);
    }
    Shortest shortest(costs);
    Rows rows;
    for (int rank = 0; rank < p; ++rank) rows.push_back(row_of(by_hand(rank), rank));
    shortest.consider(std::move(rows));
    for (const VGreedyChoice& choice : kVGreedyChoices) {
        if (auto made = greedy_rows(costs, options.microbatches, limit, choice)) {
            shortest.consider(*std::move(made));
        }
    }
    Rows refined = shortest.best();
    const int64_t passes = int64_t{kKinds} * options.microbatches * p;
    refine(refined, costs, {.limit = limit, .budget = refinement_budget(passes, kMostRefined)});
    shortest.consider(std::move(refined));
    return schedule_of(shortest.best(), options, true);
}

}  // namespace vocabpipe
