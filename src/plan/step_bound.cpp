// SPDX-License-Identifier: Apache-2.0
// Three kinds of lower bounds of the time at which a rank ends its passes: its work after the first
// microbatch has reached it; its work before its last backward, and the way of that to the first
// stage; and the time for which activations have to live, divided by the memory for them. A rank
// runs one pass at a time, but the two of an overlapped pair: a forward and a backward, each at
// most at its full speed, which together compute no more than one does.
#include "src/plan/step_bound.hpp"

#include "src/plan/end_of_step.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

using enum Op;

class Bound {
public:
    Bound(const StepModel& step, const Candidate& candidate)
        : step_(step),
          costs_(step.generate.costs),
          placement_(step.placement),
          stages_(placement_.rank_of_stage.size()),
          microbatches_(candidate.microbatches),
          splits_(generator(candidate.schedule).splits_backward),
          exchange_permille_(step.costs.exchange_permille),
          recomputes_(candidate.recompute != Recompute::none),
          two_barriers_(placement_.barriers != Barriers::one),
          own_(static_cast<size_t>(placement_.ranks)) {
        for (size_t s = 0; s < stages_; ++s) own_[rank_of(s)].push_back(s);
        find_first_passes();
    }

    /// No passes end earlier.
    [[nodiscard]] PassEnds ends() const {
        PassEnds result{.rank = std::vector<int64_t>(own_.size(), 0),
                        .stage = std::vector<int64_t>(stages_, 0),
                        .input = std::vector<int64_t>(own_.size(), 0),
                        .output = {}};
        std::vector<int64_t>& ends = result.rank;
        for (size_t r = 0; r < own_.size(); ++r) {
            const int64_t backwards = sum(r, [&](size_t s) { return work(s); });
            const int64_t after_first = microbatches_ * (backwards + of_rank(r, G));
            const int64_t all =
                paired(forwards(r), microbatches_ * backwards) +
                microbatches_ * (recomputations(r) + of_rank(r, G) + of_rank(r, S) + of_rank(r, T));
            ends[r] = std::max(microbatches_ * of_rank(r, E), first_forward(r)) + all;
            if (!has_backward(own_[r].back())) continue;
            ends[r] = std::max(ends[r], first_backward(r) + after_first);
        }
        for (size_t r = 0; r < own_.size(); ++r) {
            result.output.push_back(forward_end_.back() + microbatches_ * of_rank(r, T));
        }
        add_way_to_first_stage(result);
        return result;
    }

    /// Raises each end to the time that activations need in `memory` bytes.
    void fit(std::vector<int64_t>& ends, int64_t memory) const {
        for (size_t r = 0; r < own_.size(); ++r) {
            const int64_t spare = memory - step_.persistent[r].total();
            if (spare <= 0) continue;  // memory_bytes() says that it does not fit
            double byte_ns = 0;
            for (const size_t s : own_[r]) {
                const StageBytes& bytes = step_.sizes.stages[s];
                const int64_t whole = bytes.saved + (recomputes_ ? 0 : bytes.recomputed);
                const int64_t life =
                    forward(s) +
                    (has_backward(s) ? backward_begin_[s] - forward_end_[s] + work(s) : 0);
                byte_ns += static_cast<double>(whole) * static_cast<double>(life);
                if (!recomputes_) continue;
                byte_ns += static_cast<double>(bytes.recomputed) *
                           static_cast<double>(of_stage(s, R) + work(s));
            }
            const double ns =
                byte_ns * static_cast<double>(microbatches_) / static_cast<double>(spare);
            // One nanosecond less, for rounding.
            ends[r] = std::max(ends[r], first_forward(r) + static_cast<int64_t>(ns) - 1);
        }
    }

    /// Bytes that the rank that needs most keeps of one microbatch between the forward and the
    /// backward of its highest stage.
    [[nodiscard]] int64_t memory_bytes() const {
        int64_t most = 0;
        for (size_t r = 0; r < own_.size(); ++r) {
            int64_t saved = 0;
            for (const size_t s : own_[r]) {
                if (!has_backward(s)) continue;
                const StageBytes& bytes = step_.sizes.stages[s];
                saved += bytes.saved + (recomputes_ ? 0 : bytes.recomputed);
            }
            const size_t last = own_[r].back();
            const StageBytes highest = has_backward(last) ? step_.sizes.stages[last] : StageBytes();
            const int64_t backward =
                (recomputes_ ? highest.recomputed : 0) +
                (splits_ ? std::min(highest.backward_workspace, highest.input_gradient_workspace)
                         : highest.backward_workspace);
            const ShardBytes& shard = step_.sizes.shards[r];
            const int64_t score = of_rank(r, S) > 0 ? shard.exp_logits + shard.score_workspace : 0;
            most = std::max(most, step_.persistent[r].total() + saved + std::max(backward, score));
        }
        return most;
    }

private:
    [[nodiscard]] size_t rank_of(size_t stage) const {
        return static_cast<size_t>(placement_.rank_of_stage[stage]);
    }
    /// Whether the step needs backwards of the stage.
    [[nodiscard]] bool has_backward(size_t stage) const {
        return static_cast<int>(stage) >= step_.trained.first_backward;
    }
    /// The first stage of a rank that has backwards; `stages_`: none.
    [[nodiscard]] size_t lowest_backward(size_t rank) const {
        const auto found =
            std::ranges::find_if(own_[rank], [&](size_t s) { return has_backward(s); });
        return found == own_[rank].end() ? stages_ : *found;
    }
    /// Nanoseconds of a pass of a stage; 0 where the step leaves it out.
    [[nodiscard]] int64_t of_stage(size_t stage, Op op) const {
        if (op != F && !has_backward(stage)) return 0;
        if (op == W && !step_.trained.stages[stage]) return 0;
        return costs_(0, {.op = op, .stage = static_cast<uint16_t>(stage)});
    }
    [[nodiscard]] int64_t forward(size_t stage) const { return of_stage(stage, F); }
    /// Least time of a backward until the stage before it can go on, and of all of it.
    [[nodiscard]] int64_t critical(size_t stage) const {
        return splits_ ? std::min(of_stage(stage, I), of_stage(stage, B)) : of_stage(stage, B);
    }
    [[nodiscard]] int64_t work(size_t stage) const {
        return splits_ ? std::min(of_stage(stage, I) + of_stage(stage, W), of_stage(stage, B))
                       : of_stage(stage, B);
    }
    /// Nanoseconds of E, G, S or T on a rank; 0 where it has no rows, or they are frozen.
    [[nodiscard]] int64_t of_rank(size_t rank, Op op) const {
        if (op == G && !step_.trained.embedding) return 0;
        const auto r = static_cast<int>(rank);
        const ShardMap& map = op == E || op == G ? placement_.input : placement_.output;
        return map.rows(r) == 0 ? 0 : costs_(r, {.op = op});
    }
    [[nodiscard]] int64_t hop(size_t from, size_t to) const {
        return rank_of(from) == rank_of(to) ? 0 : costs_.hop;
    }
    template <typename Of>
    [[nodiscard]] int64_t sum(size_t rank, Of&& of) const {
        int64_t total = 0;
        for (const size_t s : own_[rank]) total += of(s);
        return total;
    }
    /// All F of a rank.
    [[nodiscard]] int64_t forwards(size_t rank) const {
        return microbatches_ * sum(rank, [&](size_t s) { return forward(s); });
    }
    /// R of all stages of a rank, of one microbatch.
    [[nodiscard]] int64_t recomputations(size_t rank) const {
        return sum(rank, [&](size_t s) { return recomputes_ ? of_stage(s, R) : 0; });
    }
    /// Least time of all forwards and backwards of a rank, which take these times alone. Forwards
    /// run one after the other, and so do backwards; what both compute does, too.
    [[nodiscard]] int64_t paired(int64_t all_forwards, int64_t all_backwards) const {
        const int64_t both = all_forwards + all_backwards;
        // Divided first, for 64 bits; rounded down.
        const int64_t compute = both / 1000 * (1000 - exchange_permille_) +
                                both % 1000 * (1000 - exchange_permille_) / 1000;
        return std::max({all_forwards, all_backwards, compute});
    }
    [[nodiscard]] int64_t first_forward(size_t rank) const {
        const size_t lowest = own_[rank].front();
        return forward_end_[lowest] - forward(lowest);
    }
    [[nodiscard]] int64_t first_backward(size_t rank) const {
        return backward_begin_[own_[rank].back()];
    }

    /// Least time of `op` on all ranks that have it, if each begins after `wait` on another rank
    /// than `home`.
    [[nodiscard]] int64_t joint(Op op, int64_t wait, size_t home) const {
        int64_t most = 0;
        for (size_t r = 0; r < own_.size(); ++r) {
            if (of_rank(r, op) == 0) continue;
            most = std::max(most, of_rank(r, op) + (r == home ? 0 : wait));
        }
        return most;
    }

    /// A microbatch that never waits for another one.
    void find_first_passes() {
        forward_end_.resize(stages_);
        backward_begin_.resize(stages_);
        const size_t last = rank_of(stages_ - 1);
        // Where a vocabulary layer is whole, the costs of joining its shards are 0.
        int64_t at = joint(E, 0, last) + costs_.reduce;
        for (size_t s = 0; s < stages_; ++s) {
            if (s > 0) at += hop(s - 1, s);
            at += forward(s);
            forward_end_[s] = at;
        }
        at += joint(S, costs_.c0, last) + costs_.c1;
        if (two_barriers_) at += joint(T, 0, last);
        at += costs_.reduce;
        for (size_t s = stages_; s-- > 0;) {
            if (s + 1 < stages_) at += critical(s + 1) + hop(s + 1, s);
            backward_begin_[s] = at;
        }
    }

    /// The last backward of a rank's lowest stage follows all its forwards and backwards, and what
    /// the output layer needs for them. From there it goes to the first stage.
    void add_way_to_first_stage(PassEnds& ends) const {
        int64_t at = 0;  // end of some backward of stage s, W not included
        for (size_t s = stages_; s-- > 0 && has_backward(s);) {
            if (s + 1 < stages_) at += hop(s + 1, s) + critical(s);
            const size_t r = rank_of(s);
            if (lowest_backward(r) == s) {
                const int64_t backwards =
                    microbatches_ * sum(r, [&](size_t of) { return critical(of); });
                const int64_t between = microbatches_ * (recomputations(r) + of_rank(r, S) +
                                                         (two_barriers_ ? of_rank(r, T) : 0));
                at = std::max({at, first_forward(r) + between + paired(forwards(r), backwards),
                               first_backward(r) + backwards});
            }
            ends.stage[s] =
                std::max(at + work(s) - critical(s), backward_begin_[s] + microbatches_ * work(s));
            ends.rank[r] = std::max(ends.rank[r], ends.stage[s]);
        }
        for (size_t r = 0; r < own_.size(); ++r) {
            if (of_rank(r, G) == 0) continue;
            ends.input[r] = at + (r == rank_of(0) ? 0 : costs_.gradient) + of_rank(r, G);
            ends.rank[r] = std::max(ends.rank[r], ends.input[r]);
        }
    }

    const StepModel& step_;
    const PassCosts& costs_;
    const Schedule& placement_;
    const size_t stages_;
    const int64_t microbatches_;
    const bool splits_;
    const int64_t exchange_permille_;
    const bool recomputes_, two_barriers_;
    std::vector<std::vector<size_t>> own_;  ///< [rank] its stages, ascending
    std::vector<int64_t> forward_end_;      ///< [stage]
    std::vector<int64_t> backward_begin_;   ///< [stage]
};

}  // namespace

StepBound bound_step(const StepModel& step, const Candidate& candidate, int64_t memory) {
    const Bound bound(step, candidate);
    const EndOfStep end(step);
    PassEnds ends = bound.ends();
    StepBound result{.step_ns = end.least_step_ns(ends), .memory_bytes = bound.memory_bytes()};
    bound.fit(ends.rank, memory);
    result.fitting_step_ns = end.least_step_ns(std::move(ends));
    return result;
}

}  // namespace vocabpipe
