// SPDX-License-Identifier: Apache-2.0
#include "src/select/memory_plan.hpp"

#include "src/select/certificate.hpp"
#include "src/select/distributed_greedy.hpp"
#include "src/select/exchange.hpp"
#include "src/select/partition.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>

namespace vocabpipe {

namespace {

constexpr int kMostRanks = 1 << 16;

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

}  // namespace

GraphSizes GraphSizes::of(const SelectContext& context) {
    const int64_t first = context.first();
    const int64_t last = context.last();
    GraphSizes sizes{.nodes = context.graph.nodes(), .entries = context.graph.entries()};
    context.agree([&] {
        GraphRows rows(context.graph);
        for (int64_t v = first; v < last; ++v) {
            const int64_t degree = rows.degree(v);
            sizes.own_entries += degree;
            sizes.longest_row = std::max(sizes.longest_row, degree);
            if (v % 65536 == 0) context.report("row lengths", v - first, last - first);
        }
    });
    sizes.rank_nodes = context.owners().largest();
    sizes.rank_entries = largest_over_ranks(context.world, sizes.own_entries);
    sizes.longest_row = largest_over_ranks(context.world, sizes.longest_row);
    return sizes;
}

GraphSizes GraphSizes::least(int64_t nodes, int64_t entries, int ranks) {
    return {.nodes = nodes,
            .entries = entries,
            .rank_nodes = Ownership(nodes, ranks).largest(),
            .rank_entries = entries / ranks};
}

GraphSizes GraphSizes::on(int ranks) const {
    GraphSizes other = *this;
    other.rank_nodes = Ownership(nodes, ranks).largest();
    other.rank_entries = std::min(entries, entries / ranks + longest_row);
    return other;
}

uint64_t MemoryPlan::total() const {
    return sum_of(always) + std::max({sum_of(bounding), sum_of(greedy), sum_of(certificate)});
}

MemoryPlan plan_memory(const GraphSizes& sizes, int ranks, int64_t parts, const BoundingRule& rule,
                       uint64_t batch_bytes) {
    struct Message {
        uint64_t word;
    };
    MemoryPlan plan;
    plan.always.emplace_back("state of samples",
                             static_cast<uint64_t>(sizes.rank_nodes) * SelectionState::kBytes);
    // Readers of rows, and for bounding also of the rows of samples that received messages.
    const uint64_t readers = 2 * GraphRows::bytes(sizes.longest_row);
    uint64_t messages = exchange_bytes<Message>(ranks, batch_bytes, sizes.longest_row);
    messages = std::max(messages, exchange_bytes<PartNode>(ranks, batch_bytes, 256));
    messages =
        std::max(messages, exchange_bytes<EdgeOfBest>(ranks, batch_bytes, sizes.longest_row));
    plan.always.emplace_back("rows that are read", readers);
    plan.always.emplace_back("messages", messages);
    plan.always.emplace_back("counters", Partition::bytes(parts));
    plan.buffer_bytes = readers + messages + Partition::bytes(parts);
    plan.bounding.emplace_back(
        "bounding", Bounding::bytes(rule, sizes.rank_nodes, sizes.rank_entries, sizes.longest_row));
    const int64_t part_nodes = (sizes.nodes + parts - 1) / parts;
    const GreedyBytes greedy = GreedyBytes::of(part_nodes, entries_inside(sizes, parts));
    plan.greedy.emplace_back("samples of a part",
                             greedy.nodes + static_cast<uint64_t>(part_nodes) * sizeof(PartNode));
    plan.greedy.emplace_back("edges inside a part", greedy.edges);
    plan.edge_bytes = greedy.edges;
    plan.certificate.emplace_back("certificate", certificate_bytes(sizes.rank_nodes));
    return plan;
}

void check_memory_plan(const MemoryPlan& plan, uint64_t memory, const GraphSizes& sizes, int ranks,
                       int64_t parts, const BoundingRule& rule, uint64_t batch_bytes) {
    if (memory == 0 || plan.total() <= memory) return;
    const auto fits = [&](int on_ranks, int64_t in_parts) {
        return plan_memory(sizes.on(on_ranks), on_ranks, in_parts, rule, batch_bytes).total() <=
               memory;
    };
    std::string remedy = "use --memory " + std::to_string(plan.total());
    // With more parts than these, memory hardly shrinks, but the choice gets worse.
    const int64_t most_parts = std::max<int64_t>(sizes.nodes / 16, 1);
    const int64_t enough_parts =
        smallest(most_parts, [&](int64_t count) { return fits(ranks, count); });
    const int64_t enough_ranks =
        smallest(kMostRanks, [&](int64_t count) { return fits(static_cast<int>(count), parts); });
    if (enough_parts > parts) remedy += ", or --partitions " + std::to_string(enough_parts);
    if (enough_ranks > ranks) remedy += ", or " + std::to_string(enough_ranks) + " ranks";
    throw OutOfMemoryError("--memory " + std::to_string(memory) + ": " +
                           std::to_string(sizes.nodes) + " samples with " +
                           std::to_string(sizes.entries) + " row entries need " +
                           std::to_string(plan.total()) + " bytes per rank; " + remedy);
}

}  // namespace vocabpipe
