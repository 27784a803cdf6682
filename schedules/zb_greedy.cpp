// SPDX-License-Identifier: Apache-2.0
#include "schedules/zb_greedy.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe {

namespace {

using enum Op;

/// A rank while its list is written.
struct Rank {
    std::vector<Pass> list;
    int64_t clock = 0;                  ///< end of the passes written so far
    int64_t waited = 0;                 ///< idle time since its first F
    int64_t f = 0;                      ///< cost of F
    int64_t i = 0;                      ///< ...
    int64_t w = 0;                      ///< ...
    int forwards = 0;                   ///< passes written
    int gradients = 0;                  ///< I
    int weights = 0;                    ///< W
    std::vector<int64_t> f_end, i_end;  ///< [microbatch]

    [[nodiscard]] int alive() const { return forwards - weights; }
    [[nodiscard]] bool weight_waits() const { return weights < gradients; }
};

class Greedy {
public:
    Greedy(const ScheduleOptions& options, int limit, const GreedyChoice& choice)
        : microbatches_(options.microbatches),
          limit_(limit),
          hop_(options.costs.hop),
          choice_(choice),
          ranks_(static_cast<size_t>(options.ranks)) {
        for (size_t r = 0; r < ranks_.size(); ++r) {
            const auto cost = [&](Op op) {
                return options.costs(static_cast<int>(r), {op, static_cast<uint16_t>(r), 0});
            };
            ranks_[r].f = cost(F);
            ranks_[r].i = cost(I);
            ranks_[r].w = cost(W);
            ranks_[r].list.reserve(3 * static_cast<size_t>(microbatches_));
        }
    }

    std::vector<std::vector<Pass>> run() {
        warm_up();
        for (int j = 1; j < microbatches_; ++j) round();
        std::vector<std::vector<Pass>> lists;
        for (size_t r = 0; r < ranks_.size(); ++r) {
            while (ranks_[r].weight_waits()) put_weight(r);
            lists.push_back(std::move(ranks_[r].list));
        }
        return lists;
    }

private:
    size_t last() const { return ranks_.size() - 1; }

    /// Forwards of microbatch 0, the forwards that fit before its gradient comes back, and its I.
    void warm_up() {
        for (size_t r = 0; r < ranks_.size(); ++r) put_forward(r);
        std::vector<int> more(ranks_.size(), 0);
        int64_t gradient = ranks_.back().clock + ranks_.back().i;  // end of I_0 on the rank below
        for (size_t r = last(); r-- > 0;) {
            const Rank& rank = ranks_[r];
            const int64_t arrives = gradient + hop_;
            int64_t clock = rank.clock;
            while (1 + more[r] < microbatches_ && rank.alive() + more[r] < limit_ &&
                   (choice_.arrive_in_time ? clock + rank.f <= arrives : clock < arrives)) {
                clock += rank.f;
                ++more[r];
            }
            gradient = std::max(clock, arrives) + rank.i;
        }
        // Fewer than on the previous rank, unless that has those of all microbatches.
        for (size_t r = 1; r < ranks_.size(); ++r) {
            if (1 + more[r - 1] < microbatches_) {
                more[r] = std::min(more[r], std::max(0, more[r - 1] - 1));
            }
        }
        for (size_t r = 0; r < ranks_.size(); ++r) {
            for (int k = 0; k < more[r]; ++k) put_forward(r);
        }
        for (size_t r = ranks_.size(); r-- > 0;) put_gradient(r);
    }

    /// A forward on the ranks that want one, from the first on, then an I on every rank, from the
    /// last on. What each waits for has been written: a rank always has as many forwards as the
    /// next one, and one more where that runs one alone.
    void round() {
        std::vector<bool> forward(ranks_.size());
        for (size_t r = 0; r < ranks_.size(); ++r) forward[r] = wants_forward(r);
        for (size_t r = last(); r-- > 0;) forward[r] = forward[r] && forward[r + 1];
        for (size_t r = 0; r < ranks_.size(); ++r) {
            if (!forward[r]) continue;
            while (ranks_[r].alive() >= limit_) put_weight(r);
            if (r > 0) {
                const auto next = static_cast<size_t>(ranks_[r].forwards);
                fill(r, ranks_[r - 1].f_end[next] + hop_);
            }
            put_forward(r);
        }
        for (size_t r = ranks_.size(); r-- > 0;) {
            if (r < last()) {
                const auto next = static_cast<size_t>(ranks_[r].gradients);
                fill(r, ranks_[r + 1].i_end[next] + hop_);
            }
            // The first rank has nothing else to do in the cool-down.
            while (r == 0 && ranks_[r].forwards == microbatches_ && ranks_[r].weight_waits()) {
                put_weight(r);
            }
            put_gradient(r);
        }
    }

    bool wants_forward(size_t r) const {
        const Rank& rank = ranks_[r];
        if (rank.forwards == microbatches_) return false;
        if (!choice_.gradient_first || r == last()) return true;
        const Rank& next = ranks_[r + 1];
        if (rank.forwards < next.forwards + 2) return true;
        // When the next rank's gradient arrives if that rank runs one more forward.
        const int64_t gradient = next.clock + next.f + next.i + hop_;
        if (rank.clock >= gradient) return false;
        // W that must run first to make room.
        const int before =
            std::min(std::max(0, rank.alive() + 1 - limit_), rank.gradients - rank.weights);
        if (rank.clock + rank.f + before * rank.w <= gradient) return true;
        return gradient - rank.clock > most_waited() - rank.waited;
    }

    /// Runs W until the next input arrives. A W longer than the hole runs only if this rank would
    /// become the one that waits most, or if the choice says so.
    void fill(size_t r, int64_t arrives) {
        const Rank& rank = ranks_[r];
        while (rank.weight_waits() && rank.clock + rank.w <= arrives) put_weight(r);
        if (!rank.weight_waits() || rank.clock >= arrives) return;
        if (choice_.always_fill || arrives - rank.clock > most_waited() - rank.waited) {
            put_weight(r);
        }
    }

    int64_t most_waited() const {
        int64_t most = 0;
        for (const Rank& rank : ranks_) most = std::max(most, rank.waited);
        return most;
    }

    void put_forward(size_t r) {
        Rank& rank = ranks_[r];
        const auto j = static_cast<size_t>(rank.forwards);
        wait(rank, r > 0 ? ranks_[r - 1].f_end[j] + hop_ : 0);
        rank.clock += rank.f;
        rank.f_end.push_back(rank.clock);
        rank.list.push_back({F, static_cast<uint16_t>(r), static_cast<uint32_t>(rank.forwards++)});
    }
    void put_gradient(size_t r) {
        Rank& rank = ranks_[r];
        const auto j = static_cast<size_t>(rank.gradients);
        wait(rank, r < last() ? ranks_[r + 1].i_end[j] + hop_ : 0);
        rank.clock += rank.i;
        rank.i_end.push_back(rank.clock);
        rank.list.push_back({I, static_cast<uint16_t>(r), static_cast<uint32_t>(rank.gradients++)});
    }
    void put_weight(size_t r) {
        Rank& rank = ranks_[r];
        rank.clock += rank.w;
        rank.list.push_back({W, static_cast<uint16_t>(r), static_cast<uint32_t>(rank.weights++)});
    }
    static void wait(Rank& rank, int64_t until) {
        if (until <= rank.clock) return;
        if (rank.forwards > 0) rank.waited += until - rank.clock;
        rank.clock = until;
    }

    int microbatches_;
    int limit_;
    int64_t hop_;
    GreedyChoice choice_;
    std::vector<Rank> ranks_;
};

}  // namespace

std::vector<std::vector<Pass>> greedy_zero_bubble(const ScheduleOptions& options, int limit,
                                                  const GreedyChoice& choice) {
    return Greedy(options, limit, choice).run();
}

}  // namespace vocabpipe
