// SPDX-License-Identifier: Apache-2.0
// The search behind v_search() (the rule is in families.hpp): make the pattern of every seed, rank
// the patterns on few microbatches, lay out the ends and fill the holes of the best, and refine the
// finalists at full size.
#include "schedules/families.hpp"

#include "vocabpipe/error.hpp"

#include "schedules/v_pattern.hpp"
#include "schedules/v_pattern_ends.hpp"
#include "schedules/v_pattern_refine.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

using namespace v_pattern;

/// Number of ranks at which a change of the step is tried; with up to 32 ranks all are.
constexpr int kMostChanges = 30;
/// Candidates of the search on fewer microbatches that are tried at full size.
constexpr size_t kFinalists = 4;
/// Most passes of all patterns whose ends are laid out anew, and of those whose holes are filled;
/// about 60 and 90 ns each on one core. Enough for all patterns of up to 16 ranks.
constexpr int64_t kMostGivenEnds = 16'000'000;
constexpr int64_t kMostFilled = 4'000'000;
/// Most passes that all refinements of a search may time: about 40 ms on one core.
constexpr int64_t kMostRefined = 4'000'000;

int64_t wrap(int64_t slot) {
    return (slot % kInterval + kInterval) % kInterval;
}

/// The parameters of a pattern: places of rank 0's F0, F1, I1, I0 modulo the interval, and the step
/// by which F0 and I1 move from one rank to the next: `first` for the first `changes_at` steps,
/// then `second`. F1 and I0 always move back by one, so that they go up the ranks without a pause.
struct Seed {
    std::array<int64_t, 4> places{};
    int64_t first = 1;
    int64_t second = 1;
    int changes_at = 0;
};

void for_every_seed(int ranks, const std::function<void(const Seed&)>& take) {
    const int stride = 1 + (ranks - 2) / (kMostChanges + 1);
    constexpr std::array<int64_t, kInterval - 1> others{1, 2, 3, 4, 5};
    for (const int64_t f1 : others) {
        for (const int64_t i1 : others) {
            for (const int64_t i0 : others) {
                if (f1 == i1 || f1 == i0 || i1 == i0) continue;
                const std::array<int64_t, 4> places{0, f1, i1, i0};
                for (int64_t first = 1; first < kInterval; ++first) {
                    take({.places = places, .first = first, .second = first});
                    for (int64_t second = 1; second < first; ++second) {
                        for (int steps = 1; steps + 1 < ranks; steps += stride) {
                            take({places, first, second, steps});
                        }
                    }
                }
            }
        }
    }
}

/// Places on every rank, W in the first free ones after their I; none if two passes collide.
/// Microbatch 0 then takes the next place of every kind along the dataflow.
std::optional<Pattern> pattern_of(const Seed& seed, int ranks) {
    Pattern pattern(static_cast<size_t>(ranks));
    std::array<int64_t, 4> places = seed.places;
    for (int rank = 0; rank < ranks; ++rank) {
        auto& mine = pattern[static_cast<size_t>(rank)];
        std::array<bool, kInterval> taken{};
        for (const int64_t place : places) {
            if (std::exchange(taken[static_cast<size_t>(place)], true)) return std::nullopt;
        }
        std::copy(places.begin(), places.end(), mine.begin());
        for (const auto& [gradient, weight] : {std::pair{I1, W1}, std::pair{I0, W0}}) {
            int64_t place = mine[gradient];
            while (taken[static_cast<size_t>(place)]) place = wrap(place + 1);
            taken[static_cast<size_t>(place)] = true;
            mine[weight] = place;
        }
        const int64_t down = rank < seed.changes_at ? seed.first : seed.second;
        for (const Kind kind : kDataflow) {
            places[kind] = wrap(places[kind] + (goes_down(kind) ? down : -1));
        }
    }
    int64_t now = 0;
    for (const Kind kind : kDataflow) {
        for (int k = 0; k < ranks; ++k) {
            auto& mine = pattern[static_cast<size_t>(goes_down(kind) ? k : ranks - 1 - k)];
            mine[kind] = now + wrap(mine[kind] - now);
            now = mine[kind] + 1;
        }
    }
    for (auto& mine : pattern) {
        mine[W1] = mine[I1] + wrap(mine[W1] - mine[I1]);
        mine[W0] = mine[I0] + wrap(mine[W0] - mine[I0]);
    }
    return pattern;
}

/// Most activations alive on any rank while the pattern repeats.
int64_t steady_peak(const Pattern& pattern) {
    int64_t most = 0;
    for (const auto& mine : pattern) {
        for (const int64_t now : {mine[F0], mine[F1]}) {
            int64_t alive = 0;
            for (const auto& [forward, weight] : {std::pair{F0, W0}, std::pair{F1, W1}}) {
                // Forwards begun by now minus weight gradients begun before now.
                const int64_t since = now - mine[forward];
                const int64_t ended = now - 1 - mine[weight];
                alive += (since - wrap(since) - ended + wrap(ended)) / kInterval;
            }
            most = std::max(most, alive);
        }
    }
    return most;
}

class Search {
public:
    Search(const ScheduleOptions& options, int limit)
        : ranks_(options.ranks),
          microbatches_(options.microbatches),
          limit_(limit),
          forward_only_(options.forward_only),
          unit_(Costs::unit(options.ranks)),
          costs_(Costs::of(options)) {}

    std::optional<Rows> run() {
        std::vector<Candidate> finalists = find_finalists(false);
        if (finalists.empty()) finalists = find_finalists(true);
        const int64_t budget = refinement();
        // Half of the budget for all of them, the rest for the best.
        int64_t left = budget;
        std::optional<Rows> best;
        int64_t best_score = 0;
        const int64_t share = budget / 2 / static_cast<int64_t>(kFinalists);
        for (const Candidate& candidate : finalists) {
            std::optional<Rows> rows = with_ends(candidate.pattern, microbatches_);
            if (!rows || !fill(*rows)) continue;
            left -= share;
            const int64_t refined = refine(*rows, costs_, {.limit = limit_, .budget = share});
            if (best && refined >= best_score) continue;
            best = std::move(rows);
            best_score = refined;
        }
        if (best) refine(*best, costs_, {.limit = limit_, .budget = left});
        return best;
    }

private:
    struct Candidate {
        size_t made = 0;  ///< its place in the order of the seeds
        Pattern pattern;
        int64_t estimate = 0;
    };

    /// The best patterns; ties go to those made first.
    std::vector<Candidate> find_finalists(bool thorough) {
        // Between warm-up and cool-down all intervals are alike: rank the patterns with few of
        // them.
        const int enough = std::min(microbatches_, 3 * ranks_);
        std::vector<Candidate> candidates;
        for_every_seed(ranks_, [&](const Seed& seed) {
            std::optional<Pattern> pattern = pattern_of(seed, ranks_);
            if (!pattern || !fits(*pattern, enough)) return;
            candidates.push_back({candidates.size(), *std::move(pattern)});
        });
        // With fewer microbatches than ranks there is no steady state.
        if (microbatches_ >= ranks_ && !thorough) drop_the_worst(candidates, enough);
        keep_best(candidates, kFinalists, [&](const Pattern& pattern) {
            std::optional<Rows> rows = with_ends(pattern, enough);
            if (rows && !fill(*rows)) rows.reset();
            return rows ? std::optional(estimate_for_all(*rows, enough)) : std::nullopt;
        });
        return candidates;
    }

    /// Closing the holes takes longest and changes the ranking of the patterns least, laying out
    /// the ends comes second: with many passes only the best patterns reach either.
    void drop_the_worst(std::vector<Candidate>& candidates, int enough) {
        const auto in_order = [&] { std::ranges::sort(candidates, {}, &Candidate::made); };
        const int steady = with_steady_state(enough);
        const int64_t passes = int64_t{kKinds} * steady * ranks_;
        if (const int64_t most = kMostGivenEnds / passes; std::ssize(candidates) > most) {
            keep_best(candidates, static_cast<size_t>(most), [&](const Pattern& pattern) {
                return timed(repeat(pattern, kEveryKind, steady), steady);
            });
            in_order();
        }
        const int64_t most = kMostFilled / passes;
        if (enough == steady && std::ssize(candidates) > most) {
            keep_best(candidates, static_cast<size_t>(most), [&](const Pattern& pattern) {
                std::optional<Rows> rows = with_ends(pattern, enough);
                return rows ? timed(*std::move(rows), enough) : std::nullopt;
            });
            in_order();
        }
    }

    /// Keeps the candidates with the least estimates, in that order; drops those without an
    /// estimate.
    template <typename Estimate>
    static void keep_best(std::vector<Candidate>& candidates, size_t most,
                          const Estimate& estimate) {
        std::erase_if(candidates, [&](Candidate& candidate) {
            const std::optional<int64_t> value = estimate(candidate.pattern);
            candidate.estimate = value.value_or(0);
            return !value;
        });
        std::ranges::stable_sort(candidates, {}, &Candidate::estimate);
        if (candidates.size() > most) candidates.resize(most);
    }

    std::optional<int64_t> timed(Rows rows, int microbatches) {
        if (!clock_.run(rows, costs_)) return std::nullopt;
        return estimate_for_all(rows, microbatches);
    }

    /// Passes that refinements may time. 0 if patterns need no refinement: all passes take the same
    /// time, and there are enough microbatches to fill the pipeline.
    int64_t refinement() const {
        if (forward_only_ || (microbatches_ >= ranks_ && costs_.alike())) return 0;
        return refinement_budget(int64_t{kKinds} * microbatches_ * ranks_, kMostRefined);
    }

    /// The least number of microbatches with which there is a steady state between the ends.
    int with_steady_state(int microbatches) const { return std::max(microbatches, 2 * ranks_); }

    bool fits(const Pattern& pattern, int microbatches) const {
        const bool steady = microbatches == with_steady_state(microbatches);
        return steady_peak(pattern) <= (steady ? limit_ : 2 * ranks_);
    }

    /// Repeats the pattern and lays out both ends, in slots of unit costs; none if the rows
    /// deadlock or need too much memory.
    std::optional<Rows> with_ends(const Pattern& pattern, int microbatches) {
        const int enough = with_steady_state(microbatches);
        if (!fits(pattern, microbatches)) return {};
        Rows rows = repeat(pattern, kEveryKind, enough);
        const int repeated_peak = peak(rows);
        if (!clock_.run(rows, unit_)) return {};
        lay_out_warm_up(rows);
        if (!clock_.run(rows, unit_) || peak(rows) > repeated_peak) return {};
        if (microbatches < enough) {
            drop_microbatches(rows, microbatches);
            if (!clock_.run(rows, unit_)) return {};
        }
        if (peak(rows) > limit_) return {};
        lay_out_cool_down(rows);
        if (!clock_.run(rows, unit_)) return {};
        return rows;
    }

    /// Fills the holes, then times the rows with the costs; false if they deadlock or need too much
    /// memory.
    bool fill(Rows& rows) {
        fill_holes(rows, limit_);
        order_weights(rows);
        return peak(rows) <= limit_ && clock_.run(rows, costs_);
    }

    /// Estimates the score with all microbatches: each further one takes as long as the last ones
    /// took on rank 0. In units of 1 / ranks.
    int64_t estimate_for_all(const Rows& rows, int timed) const {
        if (timed == microbatches_) return score(clock_) * ranks_;
        std::vector<int64_t> f1;
        for (const Cell& cell : rows[0]) {
            if (cell.kind == F1) f1.push_back(cell.at);
        }
        const int64_t took = f1.back() - f1[f1.size() - 1 - static_cast<size_t>(ranks_)];
        return score(clock_) * ranks_ + int64_t{2} * (microbatches_ - timed) * took;
    }

    int ranks_;
    int microbatches_;
    int limit_;
    bool forward_only_;
    Costs unit_;
    Costs costs_;
    Clock clock_;
};

}  // namespace

Schedule v_search(const ScheduleOptions& options) {
    const int most = 2 * options.ranks;
    const int limit =
        options.rule.memory_limit == 0 ? most : std::min(options.rule.memory_limit, most);
    if (const std::optional<Rows> rows = Search(options, limit).run()) {
        return schedule_of(*rows, options, true);
    }
    int least = limit + 1;
    while (least < most && !Search(options, least).run()) ++least;
    throw UsageError("RuleOptions::memory_limit " + std::to_string(options.rule.memory_limit) +
                     ": v-search has no pattern for " + std::to_string(options.ranks) +
                     " ranks and " + std::to_string(options.microbatches) +
                     " microbatches with so few chunks alive; use at least " +
                     std::to_string(least));
}

}  // namespace vocabpipe
