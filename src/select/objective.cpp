// SPDX-License-Identifier: Apache-2.0
#include "src/select/objective.hpp"

#include "src/select/deliver.hpp"
#include "src/select/packed_id.hpp"
#include "vocabpipe/error.hpp"

#include <limits>

namespace vocabpipe {

namespace {

constexpr int64_t kObjectiveReportEvery = 1024;  // rows

struct Inside {
    PackedId node;  ///< receives the message
    int32_t similarity = 0;
};

}  // namespace

int64_t objective_of(SelectContext& context, const SelectionState& state,
                     const ReadUtilities& utilities) {
    const Ownership& owners = context.owners;
    WideSum sum = 0;
    context.agree([&] {
        for_each_utility(state, utilities, [&](int64_t v, int32_t utility) {
            if (state.is_in(v)) sum += WideSum{context.objective.alpha} * utility;
        });
    });
    GraphRows rows(context.graph);
    int64_t at = state.first();
    WideSum similar = 0;
    const auto produce = [&](Outbox<Inside>& outbox) {
        while (at < state.last() && !state.is_in(at)) ++at;
        if (at == state.last()) return false;
        const GraphRow row = rows.at(at);
        for (size_t i = 0; i < row.degree(); ++i) {
            const int64_t neighbour = row.neighbours[i];
            if (neighbour < at) continue;
            if (state.holds(neighbour)) {
                if (state.is_in(neighbour)) similar += row.similarities[i];
                continue;
            }
            outbox.add(owners.owner_of(neighbour),
                       {.node = PackedId(neighbour), .similarity = row.similarities[i]});
        }
        if (at % kObjectiveReportEvery == 0)
            context.report("objective", at - state.first(), state.size());
        return ++at < state.last();
    };
    deliver_all<Inside>(context, state, produce, [&](std::span<const Inside> all) {
        for (const Inside& one : all) {
            if (state.is_in(one.node.value())) similar += one.similarity;
        }
    });
    sum -= WideSum{context.objective.beta} * similar;
    const WideSum total = wide_sum_over_ranks(context.world, sum);
    if (total > std::numeric_limits<int64_t>::max() ||
        total < std::numeric_limits<int64_t>::min()) {
        throw UsageError("--alpha " + std::to_string(context.objective.alpha) + ", --beta " +
                         std::to_string(context.objective.beta) +
                         ": the objective is beyond 64 bits; use smaller ones");
    }
    return static_cast<int64_t>(total);
}

}  // namespace vocabpipe
