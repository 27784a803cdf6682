// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/pass_costs.hpp"

#include "vocabpipe/lower.hpp"

#include <algorithm>

namespace vocabpipe {

PassCosts PassCosts::uniform(int64_t forward, int64_t backward, int64_t vocabulary_pass) {
    const TableCosts table = TableCosts::uniform(1, 1, forward, backward, vocabulary_pass);
    PassCosts costs{Empty{}};
    costs.stage = table.stage_ns;
    costs.rank = table.rank_ns;
    for (const Op op : {Op::E, Op::G}) costs.rank[0][static_cast<size_t>(op)] = vocabulary_pass / 4;
    return costs;
}

PassCosts PassCosts::of(const CostModel& costs, const StepSizes& sizes, const Schedule& schedule) {
    PassCosts result{Empty{}};
    result.stage.resize(static_cast<size_t>(schedule.stages));
    result.rank.resize(static_cast<size_t>(schedule.ranks));
    for (int stage = 0; stage < schedule.stages; ++stage) {
        for (const Op op : {Op::F, Op::B, Op::I, Op::W}) {
            result.stage[static_cast<size_t>(stage)][static_cast<size_t>(op)] =
                costs.pass_ns(schedule.rank_of_stage[static_cast<size_t>(stage)],
                              {op, static_cast<uint16_t>(stage), 0});
        }
    }
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        for (const Op op : {Op::E, Op::G, Op::S, Op::T}) {
            result.rank[static_cast<size_t>(rank)][static_cast<size_t>(op)] =
                costs.pass_ns(rank, {op, 0, 0});
        }
    }
    const int64_t boundary = sizes.tokens * sizes.hidden * size_of(sizes.dtype);
    const Group pair{{0, 1}, -1};
    if (schedule.ranks > 1) result.hop = costs.transfer_ns(Do::send, pair, boundary);
    const auto group = [](std::vector<int> ranks) { return Group{std::move(ranks), -1}; };
    const auto sum_to_root = [&](const Group& members, int64_t element) {
        const int64_t partial = sizes.tokens * sizes.hidden * element;
        return costs.transfer_ns(Do::exchange, members, partial) +
               costs.local_ns(Do::fold,
                              partial + boundary / static_cast<int64_t>(members.ranks.size())) +
               costs.transfer_ns(Do::gather, members,
                                 boundary / static_cast<int64_t>(members.ranks.size()));
    };
    if (const Group out = group(schedule.output.owners()); out.ranks.size() > 1) {
        const int64_t statistics = sizes.tokens * StepSizes::kStatistics * 4;
        result.c0 = costs.transfer_ns(Do::broadcast, out, boundary);
        result.c1 = costs.transfer_ns(Do::all_gather, out, statistics) +
                    costs.local_ns(Do::combine,
                                   statistics * static_cast<int64_t>(out.ranks.size()) +
                                       sizes.tokens * (StepSizes::kFactors + sizes.hidden) * 4);
        result.reduce = sum_to_root(out, 4);
    }
    if (const Group in = group(schedule.input.owners()); in.ranks.size() > 1) {
        result.gradient = costs.transfer_ns(Do::broadcast, in, boundary);
        result.reduce = std::max(result.reduce, sum_to_root(in, size_of(sizes.dtype)));
    }
    return result;
}

int64_t PassCosts::mean(Op op) const {
    const auto& table = traits(op).has_stage ? stage : rank;
    int64_t sum = 0;
    for (const OpCosts& costs : table) sum += costs[static_cast<size_t>(op)];
    const auto count = static_cast<int64_t>(table.size());
    return (sum + count / 2) / count;
}

}  // namespace vocabpipe
