// SPDX-License-Identifier: Apache-2.0
// Bytes of a selection, term by term.
#include "src/select/memory_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "src/select/files/graph_file.hpp"

namespace vocabpipe::testing {
namespace {

constexpr uint64_t kBatchOfPlan = 4096;

// A hub on one of the ranks.
GraphSizes with_hub() {
    return {.nodes = 1001,
            .entries = 8000,
            .rank_nodes = 251,
            .rank_entries = 3000,
            .own_entries = 1700,
            .longest_row = 1000};
}
BoundingRule rule_of(std::string_view text) {
    return BoundingRule::from(text, "--bounding");
}
uint64_t term(const std::vector<MemoryPlan::Term>& terms, std::string_view name) {
    const auto found = std::ranges::find(terms, name, &MemoryPlan::Term::first);
    EXPECT_NE(found, terms.end()) << name;
    return found == terms.end() ? 0 : found->second;
}

TEST(GraphSizes, AreAtLeastEvenShares) {
    const GraphSizes least = GraphSizes::least(1001, 8000, 4);
    EXPECT_EQ(least.nodes, 1001);
    EXPECT_EQ(least.entries, 8000);
    EXPECT_EQ(least.rank_nodes, 251);
    EXPECT_EQ(least.rank_entries, 2000);
    EXPECT_EQ(least.longest_row, 0);
}

// A row of a thousand messages in the batch that a rank fills, of which its vectors may hold twice
// as much, and as much of each other rank. The largest are entries for a part, of 16 bytes.
TEST(MemoryPlan, HoldsMessagesOfARankAndOfEachOther) {
    const uint64_t of_each = kBatchOfPlan / 4 + 1000 * 16;
    const auto messages = [&](std::string_view rule) {
        return term(plan_memory(with_hub(), 4, 1, rule_of(rule), kBatchOfPlan).always, "messages");
    };
    EXPECT_EQ(messages("exact"), (2 + 3) * of_each);
    EXPECT_EQ(messages("bernoulli:0.5"), (2 + 3) * of_each);
    EXPECT_EQ(messages("quota:0.5"), (2 + 3) * of_each);
    EXPECT_EQ(messages("weighted:0.5"), (2 + 3) * of_each);
    EXPECT_EQ(
        term(plan_memory(with_hub(), 1, 1, rule_of("exact"), kBatchOfPlan).always, "messages"),
        2 * (kBatchOfPlan + 1000 * 16));
    // Greedy's nodes of 16 bytes, 256 at a time, are more than short rows.
    GraphSizes even = with_hub();
    even.longest_row = 10;
    EXPECT_EQ(term(plan_memory(even, 4, 1, rule_of("quota:0.5"), kBatchOfPlan).always, "messages"),
              (2 + 3) * (kBatchOfPlan / 4 + 256 * 16));
}

TEST(MemoryPlan, AlwaysHoldsTheStateTwoRowsAndCounters) {
    const MemoryPlan plan = plan_memory(with_hub(), 4, 3, rule_of("exact"), kBatchOfPlan);
    ASSERT_EQ(plan.always.size(), 4U);
    EXPECT_EQ(term(plan.always, "state of samples"), 251U * 9);
    // A neighbour of 8 bytes and a similarity of 4.
    const uint64_t readers = 2 * (GraphRows::bytes(0) + 1000 * 12);
    EXPECT_EQ(term(plan.always, "rows that are read"), readers);
    // Where each part begins; of each part 256 counters of 8 bytes, four times.
    const uint64_t counters = 3 * 8 + 4 * 3 * 256 * 8;
    EXPECT_EQ(term(plan.always, "counters"), counters);
    EXPECT_EQ(plan.buffer_bytes, readers + term(plan.always, "messages") + counters);
}

TEST(MemoryPlan, BoundingHoldsALowerBoundAndForAQuotaTwoBitsPerEntryARowInOrderAndMessages) {
    const auto bounding = [&](std::string_view rule) {
        return term(plan_memory(with_hub(), 4, 1, rule_of(rule), kBatchOfPlan).bounding,
                    "bounding");
    };
    EXPECT_EQ(bounding("off"), 0U);
    EXPECT_EQ(bounding("exact"), 251U * 8);
    EXPECT_EQ(bounding("bernoulli:0.5"), 251U * 8);
    // And messages that wait: one for every fourth sample, and 1024.
    EXPECT_EQ(bounding("quota:0.5"), 251U * 8 + 3000 / 4 + 1000 * 16 + (251 / 4 + 1024) * 10U);
}

TEST(MemoryPlan, GreedyHoldsAPartsSamplesAndTheEdgesInside) {
    const MemoryPlan whole = plan_memory(with_hub(), 4, 1, rule_of("exact"), kBatchOfPlan);
    // Heap entry, where a row begins, its length, index, a flag, the result; and the part's list.
    const uint64_t per_sample = 16 + 8 + 4 + 2 + 1 + 8 + 16;
    EXPECT_EQ(term(whole.greedy, "samples of a part"), 1001 * per_sample);
    EXPECT_EQ(term(whole.greedy, "edges inside a part"), 8000U * 8);
    EXPECT_EQ(whole.edge_bytes, 8000U * 8);
    // The largest of ten parts has 101 samples, and both ends of an edge with 1 in 100.
    const MemoryPlan tenth = plan_memory(with_hub(), 4, 10, rule_of("exact"), kBatchOfPlan);
    EXPECT_EQ(term(tenth.greedy, "samples of a part"), 101 * per_sample);
    const double expected = 8000.0 / 100;
    const double margin = 0.05 * expected + 8 * std::sqrt(expected * (8000.0 / 1001 + 1)) + 64;
    EXPECT_EQ(tenth.edge_bytes, 8 * static_cast<uint64_t>(expected + margin));
    // With two, the margin would be beyond what there is.
    GraphSizes few = with_hub();
    few.entries = 100;
    EXPECT_EQ(plan_memory(few, 4, 2, rule_of("exact"), kBatchOfPlan).edge_bytes, 100U * 8);
}

TEST(MemoryPlan, GreedyHoldsChunksOfThePartsThatWait) {
    const auto plan = [](int64_t parts, int ranks) {
        return plan_memory(with_hub(), ranks, parts, rule_of("exact"), kBatchOfPlan);
    };
    // Samples and edges: 16 KiB of each that waits, and of the one that is read.
    EXPECT_EQ(term(plan(4, 4).greedy, "parts that wait"), 2U * 2 * 16384);
    EXPECT_EQ(term(plan(9, 4).greedy, "parts that wait"), 2U * 4 * 16384);
    EXPECT_EQ(term(plan(1000, 4).greedy, "parts that wait"), 2U * 65 * 16384) << "64 at once";
    EXPECT_EQ(plan(4, 4).disk_bytes, 0U) << "each part goes to its rank's memory";
    // Three parts per rank, each with 112 samples of 16 bytes and its edges, of 16 bytes.
    const MemoryPlan nine = plan(9, 4);
    EXPECT_EQ(nine.disk_bytes, 3U * (112 * 16 + nine.edge_bytes / 8 * 16));
}

TEST(MemoryPlan, OfAStateInFilesHoldsOneBlockAndTheMessagesToTheOthers) {
    const StateBlocks blocks{.samples = 100, .folder = {}, .chunk_bytes = 1000};
    const MemoryPlan plan =
        plan_memory(with_hub(), 4, 3, rule_of("quota:0.5"), kBatchOfPlan, blocks);
    const MemoryPlan whole = plan_memory(with_hub(), 4, 3, rule_of("quota:0.5"), kBatchOfPlan);
    // 251 samples in 3 blocks of 84; a chunk for each and one that is read.
    EXPECT_EQ(term(plan.always, "state of samples"), 84U * 9);
    EXPECT_EQ(term(plan.always, "messages to other blocks"), 4U * 1000);
    EXPECT_EQ(plan.buffer_bytes, whole.buffer_bytes + 4000);
    EXPECT_EQ(term(plan.bounding, "bounding"),
              84U * 8 + 3000 / 4 / 3 + 1000 * 16 + (84 / 4 + 1024) * 10U);
    EXPECT_EQ(term(plan.certificate, "certificate"), 84U);
    EXPECT_EQ(plan.disk_bytes, 251U * 17 + 3000 / 4 + 3000 * 12);
    EXPECT_EQ(whole.disk_bytes, 0U);
}

TEST(MemoryPlan, TakesAsFewBlocksAsFit) {
    GraphSizes sizes = GraphSizes::least(1'000'000, 1'000, 1);
    const auto blocks_in = [&](uint64_t memory) {
        return plan_blocks(sizes, memory, 1, 1000, rule_of("exact"), kBatchOfPlan).samples;
    };
    const auto bytes_of = [&](int64_t samples) {
        return plan_memory(sizes, 1, 1000, rule_of("exact"), kBatchOfPlan,
                           {.samples = samples, .folder = {}})
            .total();
    };
    EXPECT_EQ(blocks_in(0), 0) << "no limit";
    EXPECT_EQ(blocks_in(bytes_of(0)), 0) << "all of it fits";
    EXPECT_EQ(blocks_in(bytes_of(0) - 1), 500'000) << "two blocks";
    EXPECT_EQ(blocks_in(bytes_of(500'000) - 1), 333'334);
    EXPECT_EQ(blocks_in(1000), 0) << "nothing fits";
}

TEST(MemoryPlan, BoundingAndGreedyTakeTheirMemoryOneAfterTheOther) {
    const MemoryPlan plan{.always = {{"a", 1}, {"b", 20}},
                          .bounding = {{"c", 300}},
                          .greedy = {{"d", 100}, {"e", 150}}};
    EXPECT_EQ(plan.total(), 321U);
    MemoryPlan other = plan;
    other.greedy.emplace_back("f", 4000);
    EXPECT_EQ(other.total(), 4271U);
}

}  // namespace
}  // namespace vocabpipe::testing
