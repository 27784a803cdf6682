// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/memory_over_time.hpp"

#include "tests/schedule/program_tools.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace vocabpipe::testing {
namespace {

constexpr size_t kActivations = static_cast<size_t>(MemoryUse::activations);

/// Bytes alive for one use at one moment, from the spans alone.
uint64_t alive_at(const Program& program, const Timeline& timeline, MemoryUse use, int64_t moment) {
    std::vector<int64_t> born(program.buffers.size(), INT64_MAX);
    std::vector<int64_t> dead(program.buffers.size(), INT64_MIN);
    for (const Span& span : timeline.spans) {
        if (span.rank != program.rank) continue;
        for (const uint32_t buffer : program.operands_of(program.actions[span.action])) {
            if (buffer == kNoBuffer) continue;
            born[buffer] = std::min(born[buffer], span.begin_ns);
            dead[buffer] = std::max(dead[buffer], span.end_ns);
        }
    }
    uint64_t alive = 0;
    for (size_t b = 0; b < born.size(); ++b) {
        const Buffer& buffer = program.buffers[b];
        if (buffer.space != Buffer::Space::arena || memory_use(buffer.purpose) != use) continue;
        if (born[b] <= moment && moment < dead[b]) alive += buffer.bytes;
    }
    return alive;
}

TEST(MemoryOverTime, IsTheCurveThatTheSpansImply) {
    std::mt19937 random(41);
    for (int i = 0; i < 30; ++i) {
        const Schedule schedule = random_schedule(random, {.most_ranks = 3});
        SCOPED_TRACE(describe(schedule));
        const TableCosts costs = uneven_costs(schedule);
        const std::vector<Program> programs =
            lower(schedule, random_sizes(schedule, random), costs);
        std::vector<PersistentBytes> persistent;
        for (uint64_t rank = 0; rank < programs.size(); ++rank) {
            persistent.push_back({.weights = 1'000 + rank, .gradients = 20'000, .optimizer = 300});
        }
        const Simulation simulation = simulate(programs, costs, {.persistent = persistent});
        for (size_t rank = 0; rank < programs.size(); ++rank) {
            const RankMemory& memory = simulation.memory[rank];
            std::array<int64_t, kMemoryUses> alive{};
            uint64_t most = 0;
            for (size_t c = 0; c < memory.changes.size(); ++c) {
                alive[static_cast<size_t>(memory.changes[c].use)] += memory.changes[c].bytes;
                const bool settled = c + 1 == memory.changes.size() ||
                                     memory.changes[c + 1].at_ns > memory.changes[c].at_ns;
                if (!settled) continue;
                uint64_t sum = 0;
                for (const MemoryUse use : {MemoryUse::activations, MemoryUse::vocabulary,
                                            MemoryUse::communication, MemoryUse::workspace}) {
                    const auto now = static_cast<uint64_t>(alive[static_cast<size_t>(use)]);
                    ASSERT_EQ(now, alive_at(programs[rank], simulation.timeline, use,
                                            memory.changes[c].at_ns));
                    ASSERT_LE(now, memory.largest[static_cast<size_t>(use)]);
                    sum += now;
                }
                most = std::max(most, sum);
            }
            for (const int64_t rest : alive) ASSERT_EQ(rest, 0);
            ASSERT_EQ(simulation.peak_bytes[rank], most);
            ASSERT_EQ(memory.peak_bytes, most + 21'300 + rank);
            ASSERT_EQ(std::accumulate(memory.at_peak.begin(), memory.at_peak.end(), uint64_t{0}),
                      memory.peak_bytes);
            ASSERT_EQ(memory.at_peak[static_cast<size_t>(MemoryUse::weights)], 1'000 + rank);
            ASSERT_EQ(memory.largest[static_cast<size_t>(MemoryUse::optimizer)], 300U);
        }
    }
}

// 1F1B keeps p-r microbatches, each with its stage input and what F saves.
TEST(MemoryOverTime, HasThePeaksOfOneFOneB) {
    const int p = 4;
    const Schedule schedule = generated({"1f1b", VocabMode::none, false}, p, 8);
    StepSizes sizes;
    sizes.tokens = 1;
    sizes.hidden = 64;  // a boundary of 256 bytes
    sizes.stages.assign(4, {.saved = 1'000'000});
    sizes.shards.assign(4, {});
    const TableCosts costs = TableCosts::uniform(p, p, 10, 20, 0);
    const Simulation simulation = simulate(lower(schedule, sizes, costs), costs);
    for (size_t rank = 0; rank < 4; ++rank) {
        const uint64_t activations = simulation.memory[rank].largest[kActivations];
        EXPECT_EQ(activations / 1'000'000, 4 - rank);
        EXPECT_LT(activations % 1'000'000,
                  256U * 12);  // inputs, outputs and gradients on their way
    }
}

TEST(MemoryOverTime, RefusesPersistentBytesOfOtherRanks) {
    const std::vector<Program> programs =
        lowered(generated({"1f1b", VocabMode::none, false}, 2, 2));
    const std::vector<PersistentBytes> one(1);
    try {
        (void)memory_over_time({}, programs, one);
        FAIL();
    } catch (const UsageError& error) {
        EXPECT_STREQ(error.what(), "persistent bytes are set for 1 ranks, but the programs have 2");
    }
}

TEST(MemoryOverTime, OfATimelineWithoutSpansIsWhatPersists) {
    const std::vector<Program> programs =
        lowered(generated({"1f1b", VocabMode::none, false}, 1, 2));
    const std::vector<PersistentBytes> one{{.weights = 5, .gradients = 6, .optimizer = 7}};
    const RankMemory memory = memory_over_time({}, programs, one).at(0);
    EXPECT_TRUE(memory.changes.empty());
    EXPECT_EQ(memory.peak_bytes, 18U);
}

}  // namespace
}  // namespace vocabpipe::testing
