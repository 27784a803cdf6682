// SPDX-License-Identifier: Apache-2.0
// Every pass has the time that it has in the base. Backwards are delayed for the barriers,
// vocabulary passes get times in between, and each rank is sorted by time. Several delays are
// tried, each also with fillers placed anew by fill_idle(); the shortest schedule within the memory
// limit wins.
#include "vocabpipe/insert_vocabulary.hpp"

#include "src/schedule/fill_idle.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/validate.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

using enum Op;

bool is_backward_part(Op op) {
    return op == B || op == I || op == W || op == R;
}

/// Most passes of all placements together: a fraction of a second.
constexpr size_t kBudget = 1'000'000;
/// Most exp_logits that wait for their T: a second one lets T fill holes, more gain little.
constexpr int kExpLogitss = 2;
/// Settings of fill_idle() to try: percentage of a filler that must fit into a hole, and whether
/// later passes of the list may run in it. Which is best depends on the costs, and trying is cheap.
constexpr std::pair<int, bool> kFills[] = {{0, false}, {50, false},  {0, true},
                                           {50, true}, {100, false}, {100, true}};

/// A pass with the time at which it should run. A schedule sorted by times that respect every
/// dependency is valid, however long the passes really take.
struct Timed {
    int64_t at;
    Pass pass;
};

/// Merges the passes of a rank by time: transformer passes keep their order; a vocabulary pass goes
/// before the first transformer pass that starts strictly later.
std::vector<Pass> merge(std::vector<Timed> transformer, std::vector<Timed> vocabulary) {
    const auto by_time = [](const Timed& a, const Timed& b) { return a.at < b.at; };
    std::stable_sort(transformer.begin(), transformer.end(), by_time);
    std::stable_sort(vocabulary.begin(), vocabulary.end(), by_time);
    std::vector<Pass> list;
    list.reserve(transformer.size() + vocabulary.size());
    size_t v = 0;
    for (const Timed& t : transformer) {
        for (; v < vocabulary.size() && vocabulary[v].at < t.at; ++v) {
            list.push_back(vocabulary[v].pass);
        }
        list.push_back(t.pass);
    }
    for (; v < vocabulary.size(); ++v) list.push_back(vocabulary[v].pass);
    return list;
}

class Inserter {
public:
    Inserter(const Schedule& base, const InsertOptions& options)
        : base_(base),
          mode_(options.mode),
          asked_limit_(options.chunk_limit),
          costs_(options.costs) {
        for (auto& row : costs_.stage) row[static_cast<size_t>(R)] = cost_in(row, R);
        for (auto& table : {&costs_.stage, &costs_.rank}) {
            for (auto& row : *table) {
                for (int64_t& cost : row) cost = std::max<int64_t>(cost, 1);  // strictly in order
            }
        }
        times_ = time_passes(base, costs_);
        result_ = base;
        place_vocabulary(result_, mode_, options.vocab_size);
    }

    Schedule run() {
        // On one rank nothing waits.
        if (sharded(mode_) && base_.ranks > 1) {
            shard();
        } else {
            attach();
            const std::vector<int> peaks = peak_chunks(base_);
            const int most = *std::max_element(peaks.begin(), peaks.end());
            if (asked_limit_ > 0 && most > asked_limit_ && !base_.forward_only()) {
                too_small(asked_limit_, most);
            }
        }
        return std::move(result_);
    }

private:
    [[noreturn]] void too_small(int limit, int least) const {
        throw UsageError(
            "RuleOptions::memory_limit " + std::to_string(limit) + ": the schedule with " +
            std::string(to_string(mode_)) + " vocabulary layers needs at least " +
            std::to_string(least) +
            " chunks on the fullest rank, vocabulary barriers included; use a larger limit");
    }

    /// Whole layers: E directly before the first stage's F, S and T directly after the last stage's
    /// F, G directly after the first stage's backward; around a pair, not between its members.
    void attach() {
        const auto last = static_cast<uint16_t>(base_.stages - 1);
        const bool train = !base_.forward_only();
        for (std::vector<Pass>& list : result_.passes) {
            std::vector<Pass> with;
            with.reserve(2 * list.size());
            for (size_t i = 0; i < list.size(); ++i) {
                const size_t end = i + (list[i].with_next && i + 1 < list.size() ? 2 : 1);
                for (size_t k = i; k < end; ++k) {
                    if (list[k].op == F && list[k].stage == 0) {
                        with.push_back({E, 0, list[k].microbatch});
                    }
                }
                for (size_t k = i; k < end; ++k) with.push_back(list[k]);
                for (size_t k = i; k < end; ++k) {
                    const uint32_t j = list[k].microbatch;
                    if (list[k].op == F && list[k].stage == last) {
                        with.push_back({S, 0, j});
                        if (train) with.push_back({T, 0, j});
                    }
                    if ((list[k].op == B || list[k].op == I) && list[k].stage == 0) {
                        with.push_back({G, 0, j});
                    }
                }
                i = end - 1;
            }
            list = std::move(with);
        }
    }

    /// Several placements, each timed with all costs; the shortest within the memory limit wins.
    void shard() {
        collect();
        const int64_t enough = least_delay();
        const int limit = chunk_limit();
        Schedule best;
        std::pair<int, int64_t> best_score;  // chunks beyond the limit, makespan
        int least = std::numeric_limits<int>::max();
        const auto consider = [&](Schedule candidate) {
            const std::vector<int> peaks = peak_chunks(candidate);
            const int most = *std::max_element(peaks.begin(), peaks.end());
            least = std::min(least, most);
            const int beyond = base_.forward_only() ? 0 : std::max(0, most - limit);
            const std::pair score(beyond, time_passes(candidate, costs_).makespan);
            if (!best.passes.empty() && score >= best_score) return;
            best_score = score;
            best = std::move(candidate);
        };
        size_t passes = 0;
        for (const std::vector<Pass>& list : base_.passes) passes += list.size();
        const size_t affordable = kBudget / std::max<size_t>(passes, 1);
        std::vector<int64_t> delays{whole_delay(costs_.c0), whole_delay(0), enough};
        std::sort(delays.begin(), delays.end(), std::greater<>());
        delays.erase(std::unique(delays.begin(), delays.end()), delays.end());
        std::vector<Schedule> placed;
        for (const int64_t delay : delays) {
            placed.push_back(at_delay(delay));
            consider(placed.back());
        }
        if (!base_.forward_only()) {
            size_t tried = 0;
            for (const auto& [overrun, look_ahead] : kFills) {
                for (const Schedule& lists : placed) {
                    if (tried++ >= affordable) break;
                    const FillOptions fill{
                        .chunk_limit = std::vector<int>(base_.passes.size(), limit),
                        .exp_logits_limit = kExpLogitss,
                        .overrun_percent = overrun,
                        .look_ahead = look_ahead};
                    if (auto filled = fill_idle(lists, costs_, fill)) {
                        consider(*std::move(filled));
                    }
                }
            }
        }
        // Without a given limit the usual one is only a goal: a base with an uneven pattern may
        // need more.
        if (best_score.first > 0 && asked_limit_ > 0) too_small(limit, least);
        result_ = std::move(best);
    }

    /// Delay of one interval per barrier: the building block of the paper adds as much (section
    /// 5.2), and whole intervals keep the base's periodic pattern. `c0` is added on top; with c0 =
    /// 0 it must fit into the interval, which takes no more memory.
    int64_t whole_delay(int64_t c0) const {
        // S, and T if B waits for it, come strictly before B.
        const int64_t needed = std::max(extra_microbatches(mode_) * interval_ + c0, costs_.c0 + 2);
        int64_t delay = 0;
        for (size_t j = 0; j < tail_.size(); ++j) {
            delay = std::max(delay, needed - (tail_[j] - head_[j]));
        }
        return delay;
    }

    /// Least delay that the barriers need: a rank reaches its S or T at most one pass late.
    int64_t least_delay() const {
        const int64_t score = longest_ + costs_.mean(S) + costs_.c1;
        const int64_t weight = longest_ + costs_.mean(T) + costs_.reduce;
        int64_t delay = 0;
        for (size_t j = 0; j < tail_.size(); ++j) {
            const int64_t needed =
                mode_ == VocabMode::one_barrier ? score + costs_.reduce : score + weight;
            delay = std::max(delay, costs_.c0 + needed - (tail_[j] - head_[j]));
        }
        return delay;
    }

    int chunk_limit() const {
        if (asked_limit_ > 0) return asked_limit_;
        const std::vector<int> peaks = peak_chunks(base_);
        const int chunks = (base_.stages + base_.ranks - 1) / base_.ranks;
        return *std::max_element(peaks.begin(), peaks.end()) + extra_microbatches(mode_) * chunks;
    }

    /// The schedule with backwards delayed by `delay`, for all barriers together.
    Schedule at_delay(int64_t delay) {
        score_.clear();
        weight_.clear();
        for (const int64_t head : head_) {
            score_.push_back(head + costs_.c0);
            weight_.push_back(score_.back());  // in line: directly after S
        }
        for (size_t j = 0; j < head_.size(); ++j) {
            const int64_t after_score = score_[j] + longest_ + costs_.c1;
            if (mode_ == VocabMode::one_barrier) {
                // Only the optimizer waits for T: it goes just before the next S, so that one
                // exp_logits is alive, but not before every rank can have run S.
                const int64_t next = j + 1 < head_.size() ? score_[j + 1] : score_[j] + interval_;
                weight_[j] = std::max(next, after_score);
            } else if (mode_ == VocabMode::two_barriers && !tail_.empty()) {
                // Halfway to the backward that waits for it.
                weight_[j] = score_[j] + (tail_[j] + delay - score_[j]) / 2;
            }
        }
        Schedule schedule = result_;
        for (size_t rank = 0; rank < base_.passes.size(); ++rank) {
            schedule.passes[rank] = place(rank, delay);
        }
        return schedule;
    }

    void collect() {
        const auto m = static_cast<size_t>(base_.microbatches);
        const auto last = static_cast<uint16_t>(base_.stages - 1);
        head_.assign(m, 0);
        first_.assign(m, 0);
        if (!base_.forward_only()) tail_.assign(m, 0), end_.assign(m, 0);
        for (size_t rank = 0; rank < base_.passes.size(); ++rank) {
            int64_t work = 0;
            for (size_t i = 0; i < base_.passes[rank].size(); ++i) {
                const Pass& pass = base_.passes[rank][i];
                const size_t j = pass.microbatch;
                const int64_t begin = times_.begin[rank][i];
                const int64_t end = times_.end[rank][i];
                work += end - begin;
                longest_ = std::max(longest_, end - begin);
                const bool backward = pass.op == B || pass.op == I;
                if (pass.op == F && pass.stage == 0) first_[j] = begin;
                if (pass.op == F && pass.stage == last) head_[j] = end;
                if (backward && pass.stage == last) tail_[j] = begin;
                if (backward && pass.stage == 0) end_[j] = end;
            }
            interval_ = std::max(interval_, work / base_.microbatches);
        }
    }

    std::vector<Pass> place(size_t rank, int64_t delay) const {
        std::vector<Timed> transformer;
        std::vector<Timed> vocabulary;
        for (size_t i = 0; i < base_.passes[rank].size(); ++i) {
            Pass pass = base_.passes[rank][i];
            pass.with_next = false;
            transformer.push_back(
                {times_.begin[rank][i] + (is_backward_part(pass.op) ? delay : 0), pass});
        }
        const bool train = !tail_.empty();
        for (size_t j = 0; j < head_.size(); ++j) {
            const auto microbatch = static_cast<uint32_t>(j);
            // One interval ahead, so that every rank looks up its rows and rank 0 sums them in
            // time.
            const int64_t ahead = first_[j] - longest_ - costs_.reduce;
            if (result_.input.rows(static_cast<int>(rank)) > 0) {
                vocabulary.push_back({ahead, {E, 0, microbatch}});
                if (train) {
                    vocabulary.push_back({end_[j] + delay + costs_.gradient, {G, 0, microbatch}});
                }
            }
            if (result_.output.rows(static_cast<int>(rank)) > 0) {
                vocabulary.push_back({score_[j], {S, 0, microbatch}});
                if (train) vocabulary.push_back({weight_[j], {T, 0, microbatch}});
            }
        }
        return merge(std::move(transformer), std::move(vocabulary));
    }

    const Schedule& base_;
    const VocabMode mode_;
    const int asked_limit_;
    PassCosts costs_;
    PassTimes times_;
    Schedule result_;
    int64_t interval_ = 0;  ///< work of one microbatch on the busiest rank
    int64_t longest_ = 0;   ///< longest pass: the most that one rank's part can be late
    std::vector<int64_t> first_, head_;  ///< [j] begin of the first stage's F, end of the last's
    std::vector<int64_t> tail_, end_;  ///< [j] begin of the last stage's B or I, end of the first's
    std::vector<int64_t> score_, weight_;  ///< [j] times at which S and T should run
};

}  // namespace

Schedule insert_vocabulary(const Schedule& base, const InsertOptions& options) {
    if (options.vocab_size < 1) {
        throw UsageError("InsertOptions::vocab_size " + std::to_string(options.vocab_size) +
                         ": must be at least 1");
    }
    validate(base);
    if (base.input.vocab_size() > 0 || base.output.vocab_size() > 0) {
        throw UsageError("the schedule already has vocabulary passes: input layer of " +
                         std::to_string(base.input.vocab_size()) + " rows, output layer of " +
                         std::to_string(base.output.vocab_size()) +
                         " rows; use only the transformer passes, or both layers");
    }
    return Inserter(base, options).run();
}

}  // namespace vocabpipe
