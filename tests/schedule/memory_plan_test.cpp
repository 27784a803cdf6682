// SPDX-License-Identifier: Apache-2.0
// The arena: nothing that lives at the same time shares a byte, whatever the timing; how much it
// takes.
#include "tests/schedule/program_tools.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace vocabpipe::testing {
namespace {

/// Where two buffers share a byte, all users of one are over before any user of the other
/// begins, by the edges alone.
void expect_no_two_live_buffers_overlap(const Program& program) {
    const HappensBefore before(program);
    const auto users = users_of_buffers(program);
    const auto all_before = [&](size_t a, size_t b) {
        for (const uint32_t first : users[a]) {
            for (const uint32_t second : users[b]) {
                if (!before.ordered(first, second)) return false;
            }
        }
        return true;
    };
    for (size_t a = 0; a < program.buffers.size(); ++a) {
        const Buffer& x = program.buffers[a];
        if (x.space != Buffer::Space::arena) continue;
        ASSERT_LE(x.offset + x.bytes, program.arena_bytes);
        ASSERT_GT(x.bytes, 0U);
        for (size_t b = a + 1; b < program.buffers.size(); ++b) {
            const Buffer& y = program.buffers[b];
            if (y.space != Buffer::Space::arena) continue;
            if (x.offset >= y.offset + y.bytes || y.offset >= x.offset + x.bytes) continue;
            ASSERT_TRUE(all_before(a, b) || all_before(b, a))
                << "rank " << program.rank << ", buffers " << a << " (born at "
                << program.name_of(program.actions[x.born]) << ", dies at "
                << program.name_of(program.actions[x.dies]) << ") and " << b << " (born at "
                << program.name_of(program.actions[y.born]) << ", dies at "
                << program.name_of(program.actions[y.dies]) << ")";
        }
    }
}

/// Bytes alive at each place of the list, every buffer from its first to its last user in the list,
/// each rounded up to a multiple of `alignment`.
uint64_t peak_in_list_order(const Program& program, uint64_t alignment) {
    std::vector<int64_t> change(program.actions.size() + 1, 0);
    const auto users = users_of_buffers(program);
    for (size_t b = 0; b < users.size(); ++b) {
        if (program.buffers[b].space != Buffer::Space::arena) continue;
        const auto bytes = static_cast<int64_t>((program.buffers[b].bytes + alignment - 1) /
                                                alignment * alignment);
        change[users[b].front()] += bytes;
        change[users[b].back() + 1] -= bytes;
    }
    int64_t live = 0;
    int64_t peak = 0;
    for (const int64_t delta : change) peak = std::max(peak, live += delta);
    return static_cast<uint64_t>(peak);
}

/// Padding to whole cache lines and pages: none of a plan's numbers depends on more.
constexpr uint64_t kMostPadding = 256;

/// Buffers alive at the peak, at most; each is padded by less than kMostPadding.
void expect_figures_add_up(const Program& program) {
    ASSERT_GE(program.arena_bytes, program.live_peak_bytes);
    ASSERT_EQ(program.peak_by_purpose.size(), static_cast<size_t>(kPurposes));
    const uint64_t by_purpose = std::accumulate(program.peak_by_purpose.begin(),
                                                program.peak_by_purpose.end(), uint64_t{0});
    ASSERT_LE(by_purpose, program.live_peak_bytes);
    ASSERT_LE(program.live_peak_bytes, by_purpose + kMostPadding * program.buffers.size());
    // What lives from first to last user in the list cannot be planned with less.
    ASSERT_GE(program.live_peak_bytes, peak_in_list_order(program, 1));
}

class EveryMemoryPlan : public ::testing::TestWithParam<Kind> {};

TEST_P(EveryMemoryPlan, NeverPutsTwoLiveBuffersInOnePlace) {
    std::mt19937 random(5);
    for (int p = 1; p <= 6; ++p) {
        for (int m = 1; m <= 3 * p; ++m) {
            SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
            const Schedule schedule = generated(GetParam(), p, m, 37);
            StepSizes sizes = random_sizes(schedule, random);
            sizes.tied = m % 2 == 0;
            const LowerOptions options{.overlap_pairs = m % 3 != 0};
            for (const Program& program : lower(schedule, sizes, uneven_costs(schedule), options)) {
                ASSERT_NO_FATAL_FAILURE(expect_no_two_live_buffers_overlap(program));
                ASSERT_NO_FATAL_FAILURE(expect_figures_add_up(program));
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(, EveryMemoryPlan, ::testing::ValuesIn(every_kind(true)),
                         [](const auto& info) { return name_of(info.param); });

TEST(MemoryPlan, NeverPutsTwoLiveBuffersInOnePlaceForSchedulesThatNobodyDesigned) {
    std::mt19937 random(17);
    for (int i = 0; i < 400; ++i) {
        SCOPED_TRACE("case " + std::to_string(i));
        const Schedule schedule = random_schedule(random, {.most_ranks = 5, .most_stages = 8});
        StepSizes sizes = random_sizes(schedule, random);
        if (random() % 2 == 0) add_random_lengths(sizes, schedule, random);
        const LowerOptions options{.receive_ahead = static_cast<int>(random() % 4)};
        TableCosts costs = uneven_costs(schedule);
        if (random() % 3 == 0) {  // everything happens at once
            costs = TableCosts::uniform(schedule.ranks, schedule.stages, 0, 0, 0);
        }
        for (const Program& program : lower(schedule, sizes, costs, options)) {
            ASSERT_NO_FATAL_FAILURE(expect_no_two_live_buffers_overlap(program));
            ASSERT_NO_FATAL_FAILURE(expect_figures_add_up(program));
        }
    }
}

/// The same where rows stream: an action may begin before the one whose rows it takes has ended,
/// and end before it. So what keeps buffers apart are other edges, to the first user of the later
/// one; further users begin after that one.
void expect_no_streams_into_live_buffers(const Program& program) {
    Program without = program;
    without.streamed.clear();
    without.edges.clear();
    for (uint32_t i = 0; i < program.edges.size(); ++i) {
        if (std::ranges::binary_search(program.streamed, i)) continue;
        without.edges.push_back(program.edges[i]);
    }
    const HappensBefore before(without);
    const auto users = users_of_buffers(program);
    const auto all_before = [&](size_t a, size_t b) {
        return std::ranges::all_of(
            users[a], [&](uint32_t user) { return before.ordered(user, program.buffers[b].born); });
    };
    for (size_t a = 0; a < program.buffers.size(); ++a) {
        const Buffer& x = program.buffers[a];
        if (x.space != Buffer::Space::arena) continue;
        for (size_t b = a + 1; b < program.buffers.size(); ++b) {
            const Buffer& y = program.buffers[b];
            if (y.space != Buffer::Space::arena) continue;
            if (x.offset >= y.offset + y.bytes || y.offset >= x.offset + x.bytes) continue;
            ASSERT_TRUE(all_before(a, b) || all_before(b, a))
                << "rank " << program.rank << ", buffers " << a << " (born at "
                << program.name_of(program.actions[x.born]) << ") and " << b << " (born at "
                << program.name_of(program.actions[y.born]) << ")";
        }
    }
}

TEST(MemoryPlan, NeverPutsTwoLiveBuffersInOnePlaceWhereRowsStream) {
    std::mt19937 random(23);
    for (int i = 0; i < 200; ++i) {
        SCOPED_TRACE("case " + std::to_string(i));
        const Schedule schedule = random_schedule(random, {.most_ranks = 5, .most_stages = 8});
        StepSizes sizes = random_sizes(schedule, random);
        sizes.tokens += 128;
        for (size_t rank = 0; rank < sizes.shards.size(); ++rank) {
            sizes.shards[rank].exp_logits =
                sizes.tokens * schedule.output.rows(static_cast<int>(rank)) * size_of(sizes.dtype);
        }
        TableCosts costs = uneven_costs(schedule);
        costs.layers_per_stage = 1 + static_cast<double>(random() % 4);
        const LowerOptions options{.receive_ahead = static_cast<int>(random() % 4),
                                   .pieces = 2 + static_cast<int>(random() % 6)};
        for (const Program& program : lower(schedule, sizes, costs, options)) {
            ASSERT_NO_FATAL_FAILURE(expect_no_streams_into_live_buffers(program));
        }
    }
}

struct Ratio {
    double worst = 1;
    double sum = 0;
    int count = 0;
    std::string worst_case;
};

Ratio arena_over_live_peak(bool evaluation) {
    Ratio ratio;
    for (const Kind& kind : every_kind(true)) {
        if (kind.forward_only != evaluation) continue;
        for (int p = 1; p <= 6; ++p) {
            for (const int m : {1, p, 3 * p}) {
                for (const Program& program : lowered(generated(kind, p, m))) {
                    const double one = static_cast<double>(program.arena_bytes) /
                                       static_cast<double>(program.live_peak_bytes);
                    ratio.sum += one;
                    ++ratio.count;
                    if (one <= ratio.worst) continue;
                    ratio.worst = one;
                    ratio.worst_case = name_of(kind) + " p=" + std::to_string(p) +
                                       " m=" + std::to_string(m) + " rank " +
                                       std::to_string(program.rank);
                }
            }
        }
    }
    std::printf("arena / live peak: mean %.4f, worst %.4f (%s)\n", ratio.sum / ratio.count,
                ratio.worst, ratio.worst_case.c_str());
    return ratio;
}

TEST(MemoryPlan, LosesLittleToFragmentation) {
    const Ratio training = arena_over_live_peak(false);
    EXPECT_LT(training.worst, 1.8);  // p = 2, m = 2: a handful of buffers
    EXPECT_LT(training.sum / training.count, 1.05);
    // Evaluation holds a few buffers of very different sizes; the arena is that of training anyway.
    const Ratio evaluation = arena_over_live_peak(true);
    EXPECT_LT(evaluation.worst, 2.3);
    EXPECT_LT(evaluation.sum / evaluation.count, 1.2);
}

/// Most activations saved for the backward at one time, in the order of the list.
int peak_in_flight(const Program& program) {
    std::vector<int> change(program.actions.size() + 1, 0);
    for (const Buffer& buffer : program.buffers) {
        if (buffer.purpose != Purpose::activation) continue;
        ++change[buffer.born];
        --change[buffer.dies + 1];
    }
    int now = 0;
    int peak = 0;
    for (const int delta : change) peak = std::max(peak, now += delta);
    return peak;
}

// The first table of docs/schedules.md: 1F1B p-r, one barrier p-r+1, two p-r+2, interlaced
// floor(3p/2)-r; on rank 0 p, p+1, p+2 and floor(3p/2).
TEST(MemoryPlan, HoldsAsManyMicrobatchesAsThePaperSays) {
    for (int p = 2; p <= 8; ++p) {
        const int m = 3 * p;
        const auto expect_peaks = [&](VocabMode mode, int on_rank_0) {
            for (const Program& program : lowered(generated({"1f1b", mode, false}, p, m))) {
                EXPECT_EQ(peak_in_flight(program), on_rank_0 - program.rank)
                    << to_string(mode) << " p=" << p << " rank " << program.rank;
            }
        };
        expect_peaks(VocabMode::none, p);
        expect_peaks(VocabMode::redistributed, p);
        expect_peaks(VocabMode::one_barrier, p + 1);
        expect_peaks(VocabMode::two_barriers, p + 2);
        expect_peaks(VocabMode::interlaced, 3 * p / 2);
        for (const Program& program : lowered(generated({"gpipe", VocabMode::none, false}, p, m))) {
            EXPECT_EQ(peak_in_flight(program), m);
        }
    }
}

TEST(MemoryPlan, NeedsOneMicrobatchOnOneRank) {
    for (const Kind& kind : every_kind(false)) {
        if (kind.family != "1f1b") continue;
        EXPECT_EQ(peak_in_flight(lowered(generated(kind, 1, 9)).front()), 1) << name_of(kind);
    }
}

// One [N, v] tensor per microbatch between its S and T, on every rank with rows.
TEST(MemoryPlan, KeepsOneNumeratorAndReportsItUnderVocabulary) {
    for (const VocabMode mode : {VocabMode::one_barrier, VocabMode::two_barriers}) {
        const Schedule schedule = generated({"1f1b", mode, false}, 4, 12, 4000);
        StepSizes sizes = sizes_for(schedule);
        for (StageBytes& stage : sizes.stages) stage = {.saved = 256};
        for (const Program& program : lower(schedule, sizes, uneven_costs(schedule))) {
            const uint64_t exp_logits = 24 * 1000 * 4;
            const auto vocabulary =
                program.peak_by_purpose[static_cast<size_t>(Purpose::vocabulary)];
            EXPECT_GE(vocabulary, exp_logits);
            EXPECT_LT(vocabulary, 2 * exp_logits);
        }
    }
}

TEST(MemoryPlan, IsTheSmallestOneThatHoldsASingleMicrobatch) {
    // One rank, one microbatch: at the peak live what B reads, writes and works with.
    const Schedule schedule = generated({"1f1b", VocabMode::none, false}, 1, 1, 64);
    StepSizes sizes = sizes_for(schedule, 16, 16);
    sizes.stages = {{.saved = 4096, .backward_workspace = 8192}};
    sizes.shards = {{.exp_logits = 16 * 64 * 4}};
    const Program program = lower(schedule, sizes, uneven_costs(schedule)).front();
    const uint64_t boundary = 16 * 16 * 4;
    EXPECT_EQ(program.live_peak_bytes, 3 * boundary + 4096 + 8192);  // x, dy, dx; saved; workspace
    EXPECT_EQ(program.peak_by_purpose,
              (std::vector<uint64_t>{3 * boundary, 4096, 0, 0, 8192, 0, 0, 0, 0, 0}));
}

// What the simulator sees alive never exceeds what the plan has room for, whatever the costs.
TEST(MemoryPlan, HasRoomForWhatTheSimulatorSeesAliveUnderOtherCosts) {
    std::mt19937 random(23);
    for (int i = 0; i < 200; ++i) {
        const Schedule schedule = random_schedule(random, {});
        const StepSizes sizes = random_sizes(schedule, random);
        const std::vector<Program> programs = lower(schedule, sizes, uneven_costs(schedule));
        TableCosts others = TableCosts::uniform(schedule.ranks, schedule.stages, 7, 1, 13);
        others.latency_ns = static_cast<int64_t>(random() % 40);
        const Simulation simulation = simulate(programs, others);
        for (size_t rank = 0; rank < programs.size(); ++rank) {
            EXPECT_LE(simulation.peak_bytes[rank], programs[rank].arena_bytes);
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
