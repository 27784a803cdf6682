// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/local_search.hpp"

#include "tests/support/brute_force_checker.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/pass_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

namespace vocabpipe::testing {
namespace {

/// Largest number of recomputed activations alive on every rank, from R to B or W.
std::vector<int> peak_recomputed(const Schedule& schedule) {
    std::vector<int> peaks;
    for (const std::vector<Pass>& list : schedule.passes) {
        std::set<std::pair<uint16_t, uint32_t>> alive;
        size_t peak = 0;
        for (const Pass& pass : list) {
            if (pass.op == Op::R) alive.emplace(pass.stage, pass.microbatch);
            peak = std::max(peak, alive.size());
            if (pass.op == Op::B || pass.op == Op::W) alive.erase({pass.stage, pass.microbatch});
        }
        peaks.push_back(static_cast<int>(peak));
    }
    return peaks;
}

TEST(Improve, KeepsSchedulesValidWithinMemoryAndNeverLonger) {
    std::mt19937 random(11);
    int shorter = 0;
    for (int i = 0; i < 200; ++i) {
        const Schedule schedule = random_schedule(random, {.one_in_forward_only = 16});
        const PassCosts costs = PassCosts::uniform(10 + i % 7, 17, 5);
        const Schedule better = local_search(schedule, costs, {.moves = 3000});
        ASSERT_EQ(brute_force_fault(better), "") << describe(schedule) << describe(better);
        const int64_t before = time_passes(schedule, costs).makespan;
        const int64_t after = time_passes(better, costs).makespan;
        ASSERT_LE(after, before);
        shorter += after < before ? 1 : 0;
        const std::vector<int> limit = peak_chunks(schedule);
        const std::vector<int> peaks = peak_chunks(better);
        const std::vector<int> most = peak_recomputed(schedule);
        const std::vector<int> recomputed = peak_recomputed(better);
        for (size_t rank = 0; rank < peaks.size(); ++rank) {
            ASSERT_LE(peaks[rank], limit[rank]);
            ASSERT_LE(recomputed[rank], most[rank]) << describe(schedule) << describe(better);
        }
    }
    EXPECT_GT(shorter, 100);
}

TEST(Improve, LeavesListsOfOnePassAlone) {
    Schedule schedule;
    schedule.ranks = 3;
    schedule.stages = schedule.microbatches = 1;
    schedule.rank_of_stage = {1};
    schedule.input = ShardMap::whole(4, 3, 0);
    schedule.output = ShardMap::whole(4, 3, 2);
    schedule.passes = {{{Op::E, 0, 0}}, {{Op::F, 0, 0}}, {{Op::S, 0, 0}}};
    EXPECT_EQ(local_search(schedule, PassCosts(), {.moves = 5}).passes, schedule.passes);
}

TEST(Improve, GivesTheSameScheduleForTheSameSeed) {
    const Schedule schedule = make_schedule(
        "1f1b",
        {.ranks = 4, .microbatches = 8, .vocab_mode = VocabMode::one_barrier, .vocab_size = 100});
    const PassCosts costs = PassCosts::uniform(11, 19, 3);
    const Schedule once = local_search(schedule, costs, {.moves = 20000, .seed = 5});
    const Schedule again = local_search(schedule, costs, {.moves = 20000, .seed = 5});
    EXPECT_EQ(once.passes, again.passes);
}

}  // namespace
}  // namespace vocabpipe::testing
