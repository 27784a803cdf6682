// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

struct StepSizes;

/// Times for generators and searches: integer costs of passes and of the communication between
/// them, in one unit. TableCosts are the costs of a lowered program.
struct PassCosts {
    using OpCosts = TableCosts::OpCosts;  ///< [op], as in kOpTraits

    std::vector<OpCosts> stage;  ///< [stage][op] F, B, I, W, R; one entry: all stages alike
    std::vector<OpCosts> rank;   ///< [rank][op] E, G, S, T; one entry: all ranks alike
    MicrobatchLengths lengths;   ///< all costs are those of the longest
    int64_t hop = 0;             ///< a boundary to another rank
    int64_t c0 = 0;              ///< last stage's output to every output shard
    int64_t c1 = 0;              ///< statistics of all S to softmax factors everywhere
    int64_t reduce = 0;          ///< partial sums of all shards to one rank: gradient of X, E
    int64_t gradient = 0;        ///< first stage's gradient to every input shard

    /// A transformer with B = 2 F, I = W, and vocabulary passes of a third of F.
    PassCosts() : PassCosts(uniform(12, 24, 4)) {}
    /// I and W are the halves of `backward`; E and G a quarter of S and T.
    [[nodiscard]] static PassCosts uniform(int64_t forward, int64_t backward,
                                           int64_t vocabulary_pass);
    /// The costs that a program lowered with `sizes` has under `costs`.
    [[nodiscard]] static PassCosts of(const CostModel& costs, const StepSizes& sizes,
                                      const Schedule& schedule);

    /// Time of a pass on a rank.
    [[nodiscard]] int64_t operator()(int of_rank, const Pass& pass) const {
        const auto& table = traits(pass.op).has_stage ? stage : rank;
        const size_t row = traits(pass.op).has_stage ? pass.stage : static_cast<size_t>(of_rank);
        return lengths.pass_time(cost_in(table[table.size() == 1 ? 0 : row], pass.op), pass);
    }
    /// Means over stages, rounded, of the longest microbatches: what rules made for equal passes
    /// use.
    [[nodiscard]] int64_t mean(Op op) const;

private:
    struct Empty {};
    explicit PassCosts(Empty) {}
};

}  // namespace vocabpipe
