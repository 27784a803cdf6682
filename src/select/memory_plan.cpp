// SPDX-License-Identifier: Apache-2.0
#include "src/select/memory_plan.hpp"

#include "src/select/certificate.hpp"
#include "src/select/disk/message_runs.hpp"
#include "src/select/distributed_greedy.hpp"
#include "src/select/outbox.hpp"
#include "src/select/partition.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>

namespace vocabpipe {

namespace {

uint64_t sum_of(const std::vector<MemoryPlan::Term>& terms) {
    uint64_t sum = 0;
    for (const auto& [name, bytes] : terms) sum += bytes;
    return sum;
}

/// Entries with both ends in one of `parts` random parts: the expected number plus a margin. If
/// there are more, greedy reads rows again instead of holding them.
int64_t entries_inside(const GraphSizes& sizes, int64_t parts) {
    if (parts == 1) return sizes.entries;
    const auto all = static_cast<double>(sizes.entries);
    const double m = static_cast<double>(parts);
    const double degree = all / static_cast<double>(std::max<int64_t>(sizes.nodes, 1));
    const double expected = all / (m * m);
    const double most = 1.05 * expected + 8 * std::sqrt(expected * (degree + 1)) + 64;
    return std::min(sizes.entries, static_cast<int64_t>(most));
}

/// The smallest number from 1 to `most` that fits, if all larger ones fit, too; 0 if none does.
template <typename Fits>
int64_t smallest(int64_t most, const Fits& fits) {
    int64_t high = 1;
    while (high < most && !fits(high)) high = std::min(2 * high, most);
    if (!fits(high)) return 0;
    for (int64_t low = high / 2 + 1; low < high;) {
        const int64_t middle = low + (high - low) / 2;
        fits(middle) ? high = middle : low = middle + 1;
    }
    return high;
}

StateBlocks blocks_of(const GraphSizes& sizes, int64_t count) {
    if (count == 1) return {};
    return {.samples = (sizes.rank_nodes + count - 1) / count, .folder = {}};
}

/// Blocks whose messages take more memory than their samples would save nothing.
int64_t most_blocks(const GraphSizes& sizes) {
    const auto least_samples =
        static_cast<int64_t>(StateBlocks{}.chunk_bytes / SelectionState::kBytesWhileBounding);
    return std::max<int64_t>(sizes.rank_nodes / least_samples, 1);
}

}  // namespace

GraphSizes GraphSizes::of(const SelectContext& context) {
    const int64_t first = context.first();
    const int64_t last = context.last();
    GraphSizes sizes{.nodes = context.graph.nodes()};
    context.agree([&] {
        GraphRows rows(context.graph);
        for (int64_t v = first; v < last; ++v) {
            const int64_t degree = rows.degree(v);
            sizes.own_entries += degree;
            sizes.longest_row = std::max(sizes.longest_row, degree);
            if (v % 65536 == 0) context.report("row lengths", v - first, last - first);
        }
    });
    sizes.rank_nodes = context.owners.largest();
    sizes.entries = sum_over_ranks(context.world, sizes.own_entries);
    // Blocks are as long as the rank with most samples has them: as if each had as many.
    int64_t entries = sizes.own_entries;
    if (const int64_t own = last - first; own > 0 && own + 1 < sizes.rank_nodes) {
        entries = static_cast<int64_t>((WideSum{entries} * sizes.rank_nodes + own - 1) / own);
    }
    sizes.rank_entries = largest_over_ranks(context.world, entries);
    sizes.longest_row = largest_over_ranks(context.world, sizes.longest_row);
    return sizes;
}

GraphSizes GraphSizes::least(int64_t nodes, int64_t entries, int ranks) {
    return {.nodes = nodes,
            .entries = entries,
            .rank_nodes = Ownership(nodes, ranks).largest(),
            .rank_entries = entries / ranks};
}

uint64_t MemoryPlan::total() const {
    return sum_of(always) + std::max({sum_of(bounding), sum_of(greedy), sum_of(certificate)});
}

MemoryPlan plan_memory(const GraphSizes& sizes, int ranks, int64_t parts, const BoundingRule& rule,
                       uint64_t batch_bytes, const StateBlocks& blocks) {
    struct Message {
        uint64_t word;
    };
    MemoryPlan plan;
    const int64_t own = sizes.rank_nodes;
    const auto block = static_cast<uint64_t>(std::min(blocks.length(own, own), own));
    plan.always.emplace_back("state of samples", block * SelectionState::kBytes);
    // Readers of rows, and for bounding also of the rows of samples that received messages.
    const uint64_t readers = 2 * GraphRows::bytes(sizes.longest_row);
    uint64_t messages = outbox_bytes<Message>(ranks, batch_bytes, sizes.longest_row);
    messages = std::max(messages, outbox_bytes<PartNode>(ranks, batch_bytes, 256));
    messages = std::max(messages, outbox_bytes<EdgeOfBest>(ranks, batch_bytes, sizes.longest_row));
    messages = std::max(messages, outbox_bytes<PartEntry>(ranks, batch_bytes, sizes.longest_row));
    plan.always.emplace_back("rows that are read", readers);
    plan.always.emplace_back("messages", messages);
    plan.always.emplace_back("counters", Partition::bytes(parts));
    plan.buffer_bytes = readers + messages + Partition::bytes(parts);
    if (const int64_t count = blocks.count(own); count > 1) {
        const uint64_t waiting = MessageRuns::bytes(blocks, count);
        plan.always.emplace_back("messages to other blocks", waiting);
        plan.buffer_bytes += waiting;
        const auto all = static_cast<uint64_t>(own);
        const auto entries = static_cast<uint64_t>(sizes.rank_entries);
        plan.disk_bytes = all * SelectionState::kBytesWhileBounding +
                          (rule.has_quota() ? entries / 4 : 0) + entries * sizeof(EdgeOfBest);
    }
    plan.bounding.emplace_back(
        "bounding", Bounding::bytes(rule, blocks, own, sizes.rank_entries, sizes.longest_row));
    const int64_t part_nodes = (sizes.nodes + parts - 1) / parts;
    const GreedyBytes greedy = GreedyBytes::of(part_nodes, entries_inside(sizes, parts));
    plan.greedy.emplace_back("samples of a part", greedy.nodes);
    plan.greedy.emplace_back("edges inside a part", greedy.edges);
    plan.greedy.emplace_back("parts that wait", GreedyRounds::waiting_bytes(parts, ranks));
    if (parts > ranks) {
        const auto waiting = static_cast<uint64_t>(GreedyRounds::waiting(parts, ranks));
        const auto of_each =
            static_cast<uint64_t>(part_nodes) * sizeof(PartNode) +
            static_cast<uint64_t>(entries_inside(sizes, parts)) * sizeof(PartEntry);
        plan.disk_bytes += waiting * of_each;
    }
    plan.edge_bytes = greedy.edges;
    plan.certificate.emplace_back("certificate", certificate_bytes(blocks, own));
    return plan;
}

StateBlocks plan_blocks(const GraphSizes& sizes, uint64_t memory, int ranks, int64_t parts,
                        const BoundingRule& rule, uint64_t batch_bytes) {
    if (memory == 0) return {};
    const auto fits = [&](int64_t count) {
        const StateBlocks blocks = blocks_of(sizes, count);
        return plan_memory(sizes, ranks, parts, rule, batch_bytes, blocks).total() <= memory;
    };
    return blocks_of(sizes, std::max<int64_t>(smallest(most_blocks(sizes), fits), 1));
}

void check_memory_plan(const MemoryPlan& plan, uint64_t memory, const GraphSizes& sizes, int ranks,
                       int64_t parts, const BoundingRule& rule, uint64_t batch_bytes) {
    if (memory == 0 || plan.total() <= memory) return;
    const auto least = [&](int64_t in_parts) {
        const StateBlocks blocks = blocks_of(sizes, most_blocks(sizes));
        return plan_memory(sizes, ranks, in_parts, rule, batch_bytes, blocks).total();
    };
    std::string remedy = "use --memory " + std::to_string(least(parts));
    // With more parts than these, memory hardly shrinks, but the choice gets worse.
    const int64_t most_parts = std::max<int64_t>(sizes.nodes / 16, 1);
    const int64_t enough_parts =
        smallest(most_parts, [&](int64_t count) { return least(count) <= memory; });
    if (enough_parts > parts) remedy += ", or --partitions " + std::to_string(enough_parts);
    throw OutOfMemoryError("--memory " + std::to_string(memory) + ": " +
                           std::to_string(sizes.nodes) + " samples with " +
                           std::to_string(sizes.entries) + " row entries need at least " +
                           std::to_string(least(parts)) + " bytes per rank; " + remedy);
}

}  // namespace vocabpipe
