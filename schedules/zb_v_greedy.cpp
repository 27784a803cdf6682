// SPDX-License-Identifier: Apache-2.0
#include "schedules/zb_v_greedy.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace vocabpipe::v_pattern {

namespace {

/// Writes passes by the greedy rule, which gets stuck if the microbatches do not fill the pipeline:
/// functions that write passes return false then.
class Greedy {
public:
    /// `granted`: how long every rank waited in an earlier run (empty: none). A rank that waited
    /// less than the longest wait may now wait longer by the difference.
    Greedy(const Costs& costs, int microbatches, int limit, const VGreedyChoice& choice,
           std::vector<int64_t> granted)
        : costs_(costs),
          microbatches_(microbatches),
          limit_(limit),
          choice_(choice),
          granted_(std::move(granted)),
          ranks_(costs.duration[F0].size()) {
        for (Rank& rank : ranks_) {
            rank.row.reserve(static_cast<size_t>(kKinds) * static_cast<size_t>(microbatches));
            for (auto& ends : rank.ends) ends.reserve(static_cast<size_t>(microbatches));
        }
        if (!granted_.empty()) most_granted_ = *std::max_element(granted_.begin(), granted_.end());
    }

    /// The rows; none if it got stuck.
    std::optional<Rows> run() {
        if (!first_microbatch() || !catch_up()) return std::nullopt;
        for (int round = 0; round < 2 * microbatches_; ++round) {
            if (!gradients() || !forwards()) return std::nullopt;
        }
        Rows rows;
        for (int r = 0; r < ranks(); ++r) {
            while (put_weight(r)) continue;
            rows.push_back(std::move(rank(r).row));
        }
        return rows;
    }

    [[nodiscard]] std::vector<int64_t> waited() const {
        std::vector<int64_t> all;
        for (const Rank& rank : ranks_) all.push_back(rank.waited);
        return all;
    }

private:
    struct Rank {
        Row row;
        int64_t clock = 0;                              ///< end of the passes written so far
        int64_t waited = 0;                             ///< idle time since its first F0
        int alive = 0;                                  ///< activations
        std::array<std::vector<int64_t>, kKinds> ends;  ///< [kind][microbatch]
        std::vector<Kind> waiting;                      ///< W in the order of their I
        size_t waiting_first = 0;                       ///< index into `waiting`: the next to run

        [[nodiscard]] int written(Kind kind) const { return static_cast<int>(ends[kind].size()); }
    };

    int ranks() const { return static_cast<int>(ranks_.size()); }
    Rank& rank(int r) { return ranks_[static_cast<size_t>(r)]; }
    const Rank& rank(int r) const { return ranks_[static_cast<size_t>(r)]; }
    int64_t cost(Kind kind, int r) const { return costs_.duration[kind][static_cast<size_t>(r)]; }
    bool weight_waits(int r) const { return rank(r).waiting_first < rank(r).waiting.size(); }

    /// Runs microbatch 0 down the ranks and up again. Before each F1 it adds F0, one on every rank
    /// down to this one, as long as they end before the F1 can start and leave memory for the
    /// following passes.
    [[nodiscard]] bool first_microbatch() {
        for (int r = 0; r < ranks(); ++r) {
            if (!put(F0, r)) return false;
        }
        for (int r = ranks() - 1; r >= 0; --r) {
            if (r + 1 < ranks()) {
                const int64_t arrives = rank(r + 1).ends[F1].front() + costs_.hop;
                while (rank(r).alive + 2 * (r + 1) <= limit_ &&
                       rank(r).clock + cost(F0, r) <= arrives &&
                       rank(r).written(F0) < microbatches_) {
                    for (int above = 0; above <= r; ++above) {
                        if (!put(F0, above)) return false;
                    }
                }
            }
            if (!put(F1, r)) return false;
        }
        return true;
    }

    /// Runs forwards until no rank has fewer forwards, or fewer F1, than the rank before it.
    [[nodiscard]] bool catch_up() {
        Kind next = F0;
        for (int r = 1; r < ranks(); ++r) {
            const auto behind = [&] {
                const Rank& before = rank(r - 1);
                const Rank& mine = rank(r);
                return mine.written(F0) + mine.written(F1) <
                           before.written(F0) + before.written(F1) ||
                       (mine.written(F1) <= before.written(F1) &&
                        before.written(F1) < microbatches_);
            };
            while (behind()) {
                for (int below = ranks() - 1; below >= r; --below) {
                    if (rank(below).written(next) < microbatches_ && !put(next, below)) {
                        return false;
                    }
                }
                next = next == F0 ? F1 : F0;
            }
        }
        return true;
    }

    /// One I on every rank: I1, unless I0 is behind and its gradient has arrived.
    [[nodiscard]] bool gradients() {
        std::vector<int> first;
        std::vector<int> second;
        for (int r = 0; r < ranks(); ++r) {
            const int done = rank(r).written(I0);
            const bool last = r + 1 == ranks();
            const bool here =
                last || rank(r + 1).written(I0) > done || rank(r).written(I1) == microbatches_;
            (done < rank(r).written(I1) && here ? second : first).push_back(r);
        }
        std::reverse(second.begin(), second.end());
        for (const int r : second) {
            if (!fill_and_put(I0, r, true)) return false;
        }
        for (const int r : first) {
            if (!fill_and_put(I1, r, choice_.before_gradient)) return false;
        }
        return true;
    }

    [[nodiscard]] bool forwards() {
        for (int r = 0; r < ranks(); ++r) {
            const int up = rank(r).written(F1);
            const int down = rank(r).written(F0);
            if (up == microbatches_) continue;
            Kind kind = F1;
            if (up >= down) {
                kind = F0;
            } else if (r + 1 < ranks() && rank(r + 1).written(F1) <= up) {
                const bool here = r == 0 || rank(r - 1).written(F0) > down;
                if (down == microbatches_ || !here) continue;
                kind = F0;
            }
            while (rank(r).alive >= limit_) {
                if (!put_weight(r)) return false;
            }
            if (!fill_and_put(kind, r, choice_.before_forward)) return false;
        }
        return true;
    }

    /// Runs W until the input from the other rank arrives, then `kind`. If `allowed`, and if the
    /// rank would else become the one that waits most, a last W may be longer than the hole.
    [[nodiscard]] bool fill_and_put(Kind kind, int r, bool allowed) {
        const Input input = input_of(kind, r, ranks());
        if (input.rank >= 0 && input.rank != r) {
            const std::optional<int64_t> end = end_of(input, rank(r).written(kind));
            if (!end) return false;
            const int64_t arrives = *end + costs_.hop;
            while (weight_waits(r) && rank(r).clock + weight_cost(r) <= arrives) put_weight(r);
            if (allowed && weight_waits(r) &&
                arrives - rank(r).clock > most_waited(r) - rank(r).waited) {
                put_weight(r);
            }
        }
        return put(kind, r);
    }

    int64_t most_waited(int r) const {
        int64_t most = 0;
        for (const Rank& rank : ranks_) most = std::max(most, rank.waited);
        if (granted_.empty()) return most;
        return std::max(most, most_granted_ - granted_[static_cast<size_t>(r)]);
    }

    std::optional<int64_t> end_of(const Input& input, int microbatch) const {
        const auto& ends = rank(input.rank).ends[input.kind];
        if (static_cast<size_t>(microbatch) >= ends.size()) return std::nullopt;
        return ends[static_cast<size_t>(microbatch)];
    }

    int64_t weight_cost(int r) const { return cost(rank(r).waiting[rank(r).waiting_first], r); }

    bool put_weight(int r) {
        if (!weight_waits(r)) return false;
        Rank& mine = rank(r);
        const Kind kind = mine.waiting[mine.waiting_first++];
        mine.row.push_back({mine.clock, kind});
        mine.clock += cost(kind, r);
        --mine.alive;
        return true;
    }

    [[nodiscard]] bool put(Kind kind, int r) {
        Rank& mine = rank(r);
        if (mine.written(kind) == microbatches_) return false;
        if (is_forward(kind) && ++mine.alive > limit_) return false;
        const Input input = input_of(kind, r, ranks());
        if (input.rank >= 0) {
            const int64_t hop = input.rank == r ? 0 : costs_.hop;
            const std::optional<int64_t> end = end_of(input, mine.written(kind));
            if (!end) return false;
            const int64_t arrives = *end + hop;
            if (arrives > mine.clock) {
                if (mine.written(F0) > 0) mine.waited += arrives - mine.clock;
                mine.clock = arrives;
            }
        }
        mine.row.push_back({mine.clock, kind});
        mine.clock += cost(kind, r);
        mine.ends[kind].push_back(mine.clock);
        if (kind == I1) mine.waiting.push_back(W1);
        if (kind == I0) mine.waiting.push_back(W0);
        return true;
    }

    const Costs& costs_;
    int microbatches_;
    int limit_;
    VGreedyChoice choice_;
    std::vector<int64_t> granted_;
    int64_t most_granted_ = 0;
    std::vector<Rank> ranks_;
};

}  // namespace

std::optional<Rows> greedy_rows(const Costs& costs, int microbatches, int limit,
                                const VGreedyChoice& choice) {
    std::optional<Rows> best;
    int64_t least = 0;
    std::vector<int64_t> granted;
    // Repeat with the waits of every rank, as long as the longest wait gets shorter.
    while (true) {
        Greedy greedy(costs, microbatches, limit, choice, granted);
        std::optional<Rows> rows = greedy.run();
        if (!rows) return best;
        granted = greedy.waited();
        const int64_t longest = *std::max_element(granted.begin(), granted.end());
        if (best && longest >= least) return best;
        best = std::move(rows);
        least = longest;
    }
}

}  // namespace vocabpipe::v_pattern
