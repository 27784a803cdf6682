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
    result.lengths = costs.microbatch_lengths();
    const auto longest = static_cast<uint32_t>(result.lengths.of_microbatch.size());
    result.stage.resize(static_cast<size_t>(schedule.stages));
    result.rank.resize(static_cast<size_t>(schedule.ranks));
    for (int stage = 0; stage < schedule.stages; ++stage) {
        for (const Op op : {Op::F, Op::B, Op::I, Op::W, Op::R}) {
            result.stage[static_cast<size_t>(stage)][static_cast<size_t>(op)] =
                costs.pass_ns(schedule.rank_of_stage[static_cast<size_t>(stage)],
                              {op, static_cast<uint16_t>(stage), longest});
        }
    }
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        for (const Op op : {Op::E, Op::G, Op::S, Op::T}) {
            result.rank[static_cast<size_t>(rank)][static_cast<size_t>(op)] =
                costs.pass_ns(rank, {op, 0, longest});
        }
    }
    const int64_t boundary = sizes.tokens * sizes.hidden * size_of(sizes.dtype);
    const Group pair{{0, 1}, -1};
    if (schedule.ranks > 1) result.hop = costs.transfer_ns(Do::send, pair, boundary);
    // Collectives with a root include it even if it has no rows.
    const auto with_root = [](std::vector<int> ranks, int root) {
        const auto at = std::lower_bound(ranks.begin(), ranks.end(), root);
        if (at == ranks.end() || *at != root) ranks.insert(at, root);
        return Group{std::move(ranks), root};
    };
    const auto sum_to_root = [&](const std::vector<int>& owners, int root, int64_t all,
                                 int64_t element) {
        const auto count = static_cast<int64_t>(owners.size());
        const int64_t row = sizes.hidden * size_of(sizes.dtype);
        const int64_t rows = (all + count - 1) / count;  // of the largest block
        return costs.transfer_ns(Do::all_to_all, {owners, -1}, all * sizes.hidden * element) +
               costs.local_ns(Do::ordered_sum, rows * sizes.hidden * element * count + rows * row) +
               costs.transfer_ns(Do::gather, with_root(owners, root), rows * row);
    };
    const int first = schedule.rank_of_stage.front();
    const int last = schedule.rank_of_stage.back();
    if (const std::vector<int> out = schedule.output.owners(); out.size() > 1) {
        const int64_t rows = sizes.output_rows();
        const int64_t statistics = rows * sizes.statistics * 4;
        // With one barrier combine_softmax also completes the gradient of X. Reading the logits for
        // the ranks of labels is not priced: no plan of training has them.
        const int64_t completed = schedule.barriers == Barriers::one ? sizes.hidden : 0;
        result.c0 = costs.transfer_ns(Do::broadcast, with_root(out, last),
                                      boundary * sizes.predicted_tokens);
        result.c1 =
            costs.transfer_ns(Do::all_gather, {out, -1}, statistics) +
            costs.local_ns(Do::combine_softmax, statistics * static_cast<int64_t>(out.size()) +
                                                    rows * (sizes.factors + completed) * 4);
        result.reduce = sum_to_root(out, last, rows, 4);
    }
    if (const std::vector<int> in = schedule.input.owners(); in.size() > 1) {
        result.gradient = costs.transfer_ns(Do::broadcast, with_root(in, first), boundary);
        result.reduce =
            std::max(result.reduce, sum_to_root(in, first, sizes.tokens, size_of(sizes.dtype)));
    }
    return result;
}

int64_t PassCosts::mean(Op op) const {
    const auto& table = traits(op).has_stage ? stage : rank;
    int64_t sum = 0;
    for (const OpCosts& costs : table) sum += cost_in(costs, op);
    const auto count = static_cast<int64_t>(table.size());
    return (sum + count / 2) / count;
}

}  // namespace vocabpipe
