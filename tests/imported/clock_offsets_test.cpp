// SPDX-License-Identifier: Apache-2.0
#include "src/imported/clock_offsets.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

namespace vocabpipe::imported {
namespace {

/// A step of one microbatch through `ranks` stages: passes of 100 ns, messages of 20 to 40 ns, of
/// 20 at least once in each direction over the steps. The clock of rank r is offset[r] behind.
MeasuredRun chain(const std::vector<int64_t>& offset, int steps, bool arrivals) {
    std::mt19937 random(7);
    const int ranks = static_cast<int>(offset.size());
    MeasuredRun run{.stages = ranks, .microbatches = 1};
    run.hosts.resize(offset.size());
    for (int rank = 0; rank < ranks; ++rank) run.rank_of_stage.push_back(rank);
    int64_t now = 0;
    for (int number = 0; number < steps; ++number) {
        MeasuredStep step(offset.size());
        for (int i = 0; i < 2 * ranks; ++i) {
            const int rank = i < ranks ? i : 2 * ranks - 1 - i;
            const bool travels = i > 0 && i != ranks;
            const int64_t sent = now;
            if (travels) now += number == 0 ? 20 : 20 + static_cast<int64_t>(random() % 21);
            const auto at = static_cast<size_t>(rank);
            MeasuredPass pass{
                .pass = {.op = i < ranks ? Op::F : Op::B, .stage = static_cast<uint16_t>(rank)},
                .begin_ns = (arrivals ? now : sent) - offset[at],
                .end_ns = now + 100 - offset[at]};
            if (travels && arrivals) pass.arrived_ns = now - offset[at];
            step[at].push_back(pass);
            now += 100;
        }
        now += 1000;
        run.steps.push_back(std::move(step));
    }
    return run;
}

TEST(ClockOffsets, AreFoundFromMessagesInBothDirections) {
    const std::vector<int64_t> truth{0, 5'000'000, -300, 12'345'678};
    MeasuredRun run = chain(truth, 20, true);
    const std::vector<ClockOffset> found = estimate_clocks(run);
    for (size_t rank = 0; rank < truth.size(); ++rank) {
        EXPECT_EQ(found[rank].add_ns, truth[rank]) << rank;
        // Half of the fastest round trip for every hop from rank 0.
        EXPECT_EQ(found[rank].uncertainty_ns, 20 * static_cast<int64_t>(rank)) << rank;
    }
    correct_clocks(run);
    EXPECT_EQ(MeasuredRun::makespan_ns(run.steps[0]), 8 * 100 + 6 * 20);
    for (const ClockOffset& rest : estimate_clocks(run)) EXPECT_EQ(rest.add_ns, 0);
}

TEST(ClockOffsets, AreWithinTheirUncertaintyWhereArrivalsWereNotRecorded) {
    const std::vector<int64_t> truth{0, 700'000, -40'000};
    MeasuredRun run = chain(truth, 5, false);
    const std::vector<ClockOffset> found = estimate_clocks(run);
    for (size_t rank = 0; rank < truth.size(); ++rank) {
        EXPECT_LE(std::abs(found[rank].add_ns - truth[rank]), found[rank].uncertainty_ns) << rank;
    }
    correct_clocks(run);
    for (const MeasuredStep& step : run.steps) {
        const StepIndex index(step, run.stages);
        for (const std::vector<MeasuredPass>& list : step) {
            for (const MeasuredPass& one : list) {
                const auto from = index.input_of(one.pass);
                if (!from) continue;
                EXPECT_GE(one.begin_ns,
                          step[static_cast<size_t>(from->rank)][from->position].end_ns);
            }
        }
    }
}

TEST(ClockOffsets, AreZeroOnOneHostWhereMessagesAllowIt) {
    MeasuredRun run = chain({0, 7}, 3, true);
    run.hosts = {"one", "one"};
    EXPECT_EQ(estimate_clocks(run)[1].add_ns, 0);  // 7 ns are within the 20 of a message
    run = chain({0, 500}, 3, true);
    run.hosts = {"one", "one"};  // containers with clocks of their own
    EXPECT_EQ(estimate_clocks(run)[1].add_ns, 500);
}

TEST(ClockOffsets, SayWhereMessagesBoundThemFromOneSideOnly) {
    MeasuredRun run = chain({0, 500}, 3, true);
    for (MeasuredStep& step : run.steps) {
        for (std::vector<MeasuredPass>& list : step) list.resize(1);  // F alone
    }
    const ClockOffset found = estimate_clocks(run)[1];
    EXPECT_EQ(found.uncertainty_ns, -1);
    EXPECT_EQ(found.add_ns, 480);  // as if the fastest message took no time
}

}  // namespace
}  // namespace vocabpipe::imported
