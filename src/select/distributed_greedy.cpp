// SPDX-License-Identifier: Apache-2.0
#include "src/select/distributed_greedy.hpp"

#include "src/select/deliver.hpp"
#include "src/select/packed_id.hpp"
#include "src/select/partition.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace vocabpipe {

namespace {

constexpr int64_t kGammaNumerator = 3, kGammaDenominator = 4;  // the paper's 0.75

struct Chosen {
    PackedId node;  ///< receives the message
};

int64_t ceil_of(int64_t numerator, int64_t denominator) {
    return (numerator + denominator - 1) / denominator;
}

}  // namespace

RoundReport plan_round(const RoundOptions& options, int64_t round, int64_t begun, int64_t input,
                       int64_t count) {
    RoundReport plan{.round = round, .input = input};
    plan.target = ceil_of(kGammaNumerator * (options.rounds - round) * (begun - count),
                          kGammaDenominator * options.rounds) +
                  count;
    // Based on the round's input: parts by its target would need more memory than the first round.
    plan.parts = options.adaptive ? ceil_of(input, ceil_of(begun, options.parts)) : options.parts;
    plan.quota = ceil_of(plan.target, plan.parts);
    return plan;
}

GreedyRounds::GreedyRounds(SelectContext& context, SelectionState& state, uint64_t edge_bytes)
    : context_(context), state_(state), edge_bytes_(edge_bytes), rows_(context.graph) {}

void GreedyRounds::run(RoundReport& round, int64_t parts_done, const AfterParts& after_parts,
                       const PartOf& first_parts) {
    std::optional<Partition> partition;
    PartOf part_of = round.round == 1 ? first_parts : PartOf();
    if (!part_of) {
        partition.emplace(context_, state_, round.parts, round.input, round.round);
        part_of = [&](int64_t node) { return partition->part_of(node); };
    }
    const int64_t ranks = context_.world.size();
    for (int64_t first = parts_done; first < round.parts; first += ranks) {
        context_.report("greedy, parts", first, round.parts);
        const int64_t mine = first + context_.world.rank();
        std::vector<int64_t> chosen;
        {
            const auto most =
                static_cast<uint64_t>(mine < round.parts ? ceil_of(round.input, round.parts) : 0);
            // Sorting and filling do not copy a part: it is allocated once.
            const MemoryLease lease(context_.memory, first_parts ? 0 : most * sizeof(PartNode),
                                    "a part's samples");
            std::vector<PartNode> nodes = collect(part_of, first, round);
            const auto may_be_in = [&](int64_t node) {
                return partition ? partition->has(mine, node) : part_of(node) == mine;
            };
            context_.agree([&] {
                chosen = greedy(context_, rows_, nodes, round.quota, edge_bytes_, may_be_in);
            });
            if (observe_ && mine < round.parts) observe_(round.round, mine, nodes, chosen);
        }
        tell(chosen);
        if (after_parts) after_parts(std::min(first + ranks, round.parts));
    }
    int64_t kept = 0;
    for (int64_t v = state_.first(); v < state_.last(); ++v) {
        if (!state_.is_open(v)) continue;
        if (state_.marked(v)) {
            state_.unmark(v);
            ++kept;
        } else {
            state_.decide(v, Decision::discarded);
        }
    }
    round.kept = sum_over_ranks(context_.world, kept);
}

/// Collects the samples of part first_part + rank from their owners.
std::vector<PartNode> GreedyRounds::collect(const PartOf& part_of, int64_t first_part,
                                            const RoundReport& round) {
    std::vector<PartNode> nodes;
    nodes.reserve(static_cast<size_t>(ceil_of(round.input, round.parts)));
    int64_t at = state_.first();
    const int64_t ranks = context_.world.size();
    const auto produce = [&](Outbox<PartNode>& outbox) {
        // Looks at a bounded number of samples: few of them may be in these parts.
        for (const int64_t end = std::min(at + 256, state_.last()); at < end; ++at) {
            if (!state_.is_open(at)) continue;
            const int64_t to = part_of(at) - first_part;
            if (to < 0 || to >= ranks) continue;
            outbox.add(static_cast<int>(to), {.gain = state_.u_max(at), .node = at});
        }
        return at < state_.last();
    };
    exchange_all<PartNode>(context_, produce, [&](std::span<const PartNode> some) {
        nodes.insert(nodes.end(), some.begin(), some.end());
    });
    std::ranges::sort(nodes, {}, &PartNode::node);
    return nodes;
}

/// Tells the owners of the chosen samples to mark them.
void GreedyRounds::tell(std::span<const int64_t> chosen) {
    const Ownership owners = context_.owners();
    size_t at = 0;
    const auto produce = [&](Outbox<Chosen>& outbox) {
        if (at == chosen.size()) return false;
        outbox.add(owners.owner_of(chosen[at]), {.node = PackedId(chosen[at])});
        return ++at < chosen.size();
    };
    deliver_all<Chosen>(context_, state_, produce, [&](std::span<const Chosen> all) {
        for (const Chosen& one : all) state_.mark(one.node.value());
    });
}

}  // namespace vocabpipe
