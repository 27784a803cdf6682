// SPDX-License-Identifier: Apache-2.0
#include "schedules/v_pattern_refine.hpp"

#include <algorithm>
#include <random>
#include <utility>

namespace vocabpipe::v_pattern {

namespace {

constexpr int64_t kFarthest = 6;         // most positions that a pass moves: an interval
constexpr uint64_t kCriticalShare = 65;  // percent of the moves that start on the critical path

struct Place {
    int rank = 0;
    int64_t position = 0;
};

class Refiner {
public:
    Refiner(Rows& rows, const Costs& costs, int limit)
        : rows_(rows), costs_(costs), limit_(limit), ranks_(static_cast<int>(rows.size())) {}

    int64_t run(int64_t budget) {
        (void)clock_.run(rows_, costs_);
        best_ = score(clock_);
        const int64_t bound = lower_bound();
        find_critical_path();
        const auto passes = static_cast<int64_t>(rows_[0].size()) * ranks_;
        // An upper bound: a move that the limit forbids times only its own rank.
        const int64_t trials = budget / passes;
        for (int64_t trial = 0; trial < trials && best_ > bound; ++trial) try_a_move();
        (void)clock_.run(rows_, costs_);
        return best_;
    }

private:
    Row& row(int rank) { return rows_[static_cast<size_t>(rank)]; }

    /// The same on every platform, unlike the distributions of the library.
    int64_t below(int64_t limit) {
        return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
    }

    /// No order has a smaller score: every rank runs all its passes, the first one after microbatch
    /// 0 has come down.
    int64_t lower_bound() const {
        int64_t makespan = 0;
        int64_t span = 0;
        int64_t arrives = 0;
        for (size_t r = 0; r < rows_.size(); ++r) {
            int64_t work = 0;
            for (const Cell& cell : rows_[r]) work += costs_.duration[cell.kind][r];
            makespan = std::max(makespan, arrives + work);
            span = std::max(span, work);
            arrives += costs_.duration[F0][r] + costs_.hop;
        }
        return makespan + span;
    }

    /// Follows the passes that were waited for back from the pass that ends last.
    void find_critical_path() {
        critical_.clear();
        Place place;
        for (int rank = 0; rank < ranks_; ++rank) {
            if (end(rank) > end(place.rank)) place.rank = rank;
        }
        place.position = static_cast<int64_t>(row(place.rank).size()) - 1;
        while (place.position >= 0) {
            critical_.push_back(place);
            place = waited_for(place);
        }
    }

    int64_t end(int rank) { return end(rank, row(rank).back()); }
    int64_t end(int rank, const Cell& cell) const {
        return cell.at + costs_.duration[cell.kind][static_cast<size_t>(rank)];
    }

    /// The pass that this one waited for: the previous one on its rank, or its input on another
    /// rank. Position -1: none.
    Place waited_for(const Place& place) {
        const Place before{place.rank, place.position - 1};
        const Row& mine = row(place.rank);
        const Cell cell = mine[static_cast<size_t>(place.position)];
        const int64_t free_at =
            place.position == 0 ? 0 : end(place.rank, mine[static_cast<size_t>(before.position)]);
        const Input input = input_of(cell.kind, place.rank, ranks_);
        if (free_at == cell.at || input.rank < 0 || input.rank == place.rank) return before;
        const Row& other = row(input.rank);
        const int64_t began =
            cell.at - costs_.hop - costs_.duration[input.kind][static_cast<size_t>(input.rank)];
        auto found = std::lower_bound(other.begin(), other.end(), began,
                                      [](const Cell& c, int64_t at) { return c.at < at; });
        // Passes that take no time begin together.
        while (found != other.end() && found->at == began && found->kind != input.kind) ++found;
        if (found == other.end() || found->at != began) return before;
        return {input.rank, found - other.begin()};
    }

    void try_a_move() {
        Place from{static_cast<int>(below(ranks_)), 0};
        from.position = below(static_cast<int64_t>(row(from.rank).size()));
        if (random_() % 100 < kCriticalShare) {
            from = critical_[static_cast<size_t>(below(static_cast<int64_t>(critical_.size())))];
        }
        const int64_t by = below(2 * kFarthest) - kFarthest;
        const int64_t to = from.position + (by < 0 ? by : by + 1);
        Row& mine = row(from.rank);
        if (to < 0 || to >= static_cast<int64_t>(mine.size())) return;
        rotate(mine, from.position, to);
        if (peak(mine) <= limit_ && clock_.run(rows_, costs_) && score(clock_) <= best_) {
            best_ = score(clock_);
            find_critical_path();
        } else {
            rotate(mine, to, from.position);
        }
    }

    static void rotate(Row& row, int64_t from, int64_t to) {
        const auto begin = row.begin();
        if (from < to) {
            std::rotate(begin + from, begin + from + 1, begin + to + 1);
        } else {
            std::rotate(begin + to, begin + from, begin + from + 1);
        }
    }

    Rows& rows_;
    const Costs& costs_;
    int limit_;
    int ranks_;
    Clock clock_;
    int64_t best_ = 0;
    std::vector<Place> critical_;
    std::mt19937_64 random_;  // its default seed
};

}  // namespace

int64_t refine(Rows& rows, const Costs& costs, const RefineOptions& options) {
    return Refiner(rows, costs, options.limit).run(options.budget);
}

}  // namespace vocabpipe::v_pattern
