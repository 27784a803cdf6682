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
constexpr int64_t kSamplesAtOnce = 256;              // few of them may be in the parts that wait
constexpr uint64_t kChunkBytes = uint64_t{1} << 14;  // of a part that waits

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

int64_t GreedyRounds::waiting(int64_t parts, int ranks) {
    return std::min(ceil_of(parts, ranks), kMostWaiting);
}

uint64_t GreedyRounds::waiting_bytes(int64_t parts, int ranks) {
    const StateBlocks chunks{.chunk_bytes = kChunkBytes};
    return 2 * MessageRuns::bytes(chunks, waiting(parts, ranks));  // samples and edges
}

void GreedyRounds::run(RoundReport& round, int64_t parts_done, const AfterParts& after_parts,
                       const PartOf& first_parts) {
    std::optional<Partition> partition;
    PartOf part_of = round.round == 1 ? first_parts : PartOf();
    std::function<bool(int64_t, int64_t)> has = [&](int64_t part, int64_t node) {
        return part_of(node) == part;
    };
    if (!part_of) {
        partition.emplace(context_, state_, round.parts, round.input, round.round);
        part_of = [&](int64_t node) { return partition->part_of(node); };
        has = [&](int64_t part, int64_t node) { return partition->has(part, node); };
    }
    const int64_t at_once = context_.world.size() * kMostWaiting;
    for (int64_t first = parts_done; first < round.parts; first += at_once) {
        const Waiting parts{.round = round,
                            .part_of = part_of,
                            .has = has,
                            .most_nodes = partition ? ceil_of(round.input, round.parts) : 0,
                            .first = first,
                            .last = std::min(first + at_once, round.parts)};
        if (turns(parts) == 1 && run_in_memory(parts)) {
            if (after_parts) after_parts(parts.last);
        } else {
            run_from_files(parts, after_parts);
        }
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

int64_t GreedyRounds::turns(const Waiting& parts) const {
    return ceil_of(parts.last - parts.first, context_.world.size());
}

/// The part that this rank works on; beyond the last: none.
int64_t GreedyRounds::part_at(const Waiting& parts, int64_t turn) const {
    return parts.first + turn * context_.world.size() + context_.world.rank();
}

int64_t GreedyRounds::most_nodes_at(const Waiting& parts, int64_t turn) const {
    return part_at(parts, turn) < parts.last ? parts.most_nodes : 0;
}

int64_t GreedyRounds::turn_of(const Waiting& parts, int64_t node) const {
    return (parts.part_of(node) - parts.first) / context_.world.size();
}

/// Calls receive(nodes) with the samples of this rank's parts, from their owners. Collective.
template <typename Receive>
void GreedyRounds::send_nodes(const Waiting& parts, const Receive& receive) {
    int64_t at = state_.first();
    const auto produce = [&](Outbox<PartNode>& outbox) {
        for (const int64_t end = std::min(at + kSamplesAtOnce, state_.last()); at < end; ++at) {
            if (!state_.is_open(at)) continue;
            const int64_t part = parts.part_of(at);
            if (part < parts.first || part >= parts.last) continue;
            outbox.add(static_cast<int>((part - parts.first) % context_.world.size()),
                       {.gain = state_.u_max(at), .node = at});
        }
        return at < state_.last();
    };
    send_all<PartNode>(context_, produce, receive);
}

/// Calls receive(entries) with the row entries within this rank's parts, from the owners of the
/// rows; those of a row are next to each other. Collective.
template <typename Receive>
void GreedyRounds::send_edges(const Waiting& parts, const Receive& receive) {
    int64_t at = state_.first();
    const auto produce = [&](Outbox<PartEntry>& outbox) {
        for (const int64_t end = std::min(at + kSamplesAtOnce, state_.last());
             at < end && !outbox.full();) {
            const int64_t v = at++;
            if (v % 65536 == 0) context_.report("rows of parts", v - state_.first(), state_.size());
            if (!state_.is_open(v)) continue;
            const int64_t part = parts.part_of(v);
            if (part < parts.first || part >= parts.last) continue;
            const auto to = static_cast<int>((part - parts.first) % context_.world.size());
            const GraphRow row = rows_.at(v);
            for (size_t i = 0; i < row.degree(); ++i) {
                const int64_t neighbour = row.neighbours[i];
                if (!parts.has(part, neighbour)) continue;
                if (state_.holds(neighbour) && !state_.is_open(neighbour)) continue;
                outbox.add(to, {.node = PackedId(v),
                                .other = PackedId(neighbour),
                                .similarity = row.similarities[i]});
            }
        }
        return at < state_.last();
    };
    send_all<PartEntry>(context_, produce, receive);
}

/// Runs greedy in one part per rank. Returns false, without having chosen, if the edges within a
/// part have no room in memory.
bool GreedyRounds::run_in_memory(const Waiting& parts) {
    const int64_t most = most_nodes_at(parts, 0);
    const MemoryLease lease(context_.memory, GreedyBytes::of(most, 0).nodes, "a part's samples");
    std::vector<PartNode> nodes;
    std::optional<PartEdges> edges;
    context_.agree([&] { nodes.reserve(static_cast<size_t>(most)); });
    send_nodes(parts, [&](std::span<const PartNode> some) {
        nodes.insert(nodes.end(), some.begin(), some.end());
    });
    bool fits = true;
    context_.agree([&] {
        std::ranges::sort(nodes, {}, &PartNode::node);
        edges.emplace(context_.memory, nodes, edge_bytes_);
    });
    send_edges(parts, [&](std::span<const PartEntry> some) { fits = fits && edges->add(some); });
    if (largest_over_ranks(context_.world, fits ? 0 : 1) > 0) return false;
    choose(parts, 0, nodes, *edges);
    return true;
}

/// Runs greedy in the parts of each rank, one after the other, which wait in files.
void GreedyRounds::run_from_files(const Waiting& parts, const AfterParts& after_parts) {
    StateBlocks chunks = context_.blocks;
    chunks.chunk_bytes = kChunkBytes;
    const MemoryLease lease(context_.memory,
                            waiting_bytes(parts.last - parts.first, context_.world.size()),
                            "parts that wait");
    MessageRuns all_nodes(chunks, turns(parts)), all_edges(chunks, turns(parts));
    send_nodes(parts, [&](std::span<const PartNode> some) {
        for (const PartNode& one : some) all_nodes.add(turn_of(parts, one.node), one);
    });
    send_edges(parts, [&](std::span<const PartEntry> some) {
        for (const PartEntry& one : some) all_edges.add(turn_of(parts, one.node.value()), one);
    });
    for (int64_t turn = 0; turn < turns(parts); ++turn) {
        const int64_t first = parts.first + turn * context_.world.size();
        context_.report("greedy, parts", first, parts.round.parts);
        {
            const int64_t most = most_nodes_at(parts, turn);
            const MemoryLease lease_of_nodes(context_.memory, GreedyBytes::of(most, 0).nodes,
                                             "a part's samples");
            std::vector<PartNode> nodes;
            std::optional<PartEdges> edges;
            context_.agree([&] {
                nodes.reserve(static_cast<size_t>(most));
                all_nodes.read<PartNode>(turn, [&](std::span<const PartNode> some) {
                    nodes.insert(nodes.end(), some.begin(), some.end());
                });
                std::ranges::sort(nodes, {}, &PartNode::node);
                edges.emplace(context_.memory, nodes, edge_bytes_);
                bool fits = true;
                all_edges.read<PartEntry>(turn, [&](std::span<const PartEntry> some) {
                    fits = fits && edges->add(some);
                });
                if (!fits) edges->read_from(all_edges, turn);
            });
            choose(parts, turn, nodes, *edges);
        }
        if (after_parts) {
            after_parts(std::min<int64_t>(first + context_.world.size(), parts.last));
        }
    }
}

void GreedyRounds::choose(const Waiting& parts, int64_t turn, std::vector<PartNode>& nodes,
                          const PartEdges& edges) {
    const int64_t part = part_at(parts, turn);
    std::vector<int64_t> chosen;
    context_.agree([&] { chosen = greedy(context_, nodes, parts.round.quota, edges); });
    if (observe_ && part < parts.last) observe_(parts.round.round, part, nodes, chosen);
    tell(chosen);
}

/// Tells the owners of the chosen samples to mark them.
void GreedyRounds::tell(std::span<const int64_t> chosen) {
    const Ownership& owners = context_.owners;
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
