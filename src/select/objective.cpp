// SPDX-License-Identifier: Apache-2.0
#include "src/select/objective.hpp"

#include "src/select/exchange.hpp"
#include "vocabpipe/error.hpp"

#include <array>
#include <limits>

namespace vocabpipe {

namespace {

__extension__ using Wide = __int128;

constexpr int64_t kObjectiveReportEvery = 1024;  // rows

struct Inside {
    uint32_t node;  ///< receives the message
    int32_t similarity;
};

}  // namespace

int64_t objective_of(SelectContext& context, const SelectionState& state,
                     const ReadUtilities& utilities) {
    const Ownership owners = context.owners();
    Wide sum = 0;
    context.agree([&] {
        std::array<int32_t, 4096> block;
        for (int64_t v = state.first(); v < state.last(); v += std::ssize(block)) {
            const auto some = std::span(block).first(
                static_cast<size_t>(std::min(std::ssize(block), state.last() - v)));
            utilities(v, some);
            for (size_t i = 0; i < some.size(); ++i) {
                if (state.is_in(v + static_cast<int64_t>(i))) {
                    sum += Wide{context.objective.alpha} * some[i];
                }
            }
        }
    });
    GraphRows rows(context.graph);
    int64_t at = state.first();
    Wide similar = 0;
    const auto produce = [&](Outbox<Inside>& outbox) {
        while (at < state.last() && !state.is_in(at)) ++at;
        if (at == state.last()) return false;
        const GraphRow row = rows.at(at);
        for (size_t i = 0; i < row.degree(); ++i) {
            const uint32_t neighbour = row.neighbours[i];
            if (neighbour < at) continue;
            if (neighbour < state.last()) {  // owned by this rank
                if (state.is_in(neighbour)) similar += row.similarities[i];
                continue;
            }
            outbox.add(owners.owner_of(neighbour),
                       {.node = neighbour, .similarity = row.similarities[i]});
        }
        if (at % kObjectiveReportEvery == 0)
            context.report("objective", at - state.first(), state.size());
        return ++at < state.last();
    };
    exchange_all<Inside>(context, produce, [&](std::span<const Inside> all) {
        for (const Inside& one : all) {
            if (state.is_in(one.node)) similar += one.similarity;
        }
    });
    sum -= Wide{context.objective.beta} * similar;
    Wide total = 0;
    for (const auto& bytes : context.world.all_gather(std::as_bytes(std::span(&sum, 1)))) {
        Wide one = 0;
        std::memcpy(&one, bytes.data(), sizeof one);
        total += one;
    }
    if (total > std::numeric_limits<int64_t>::max() ||
        total < std::numeric_limits<int64_t>::min()) {
        throw UsageError("--alpha " + std::to_string(context.objective.alpha) + ", --beta " +
                         std::to_string(context.objective.beta) +
                         ": the objective is beyond 64 bits; use smaller ones");
    }
    return static_cast<int64_t>(total);
}

}  // namespace vocabpipe
