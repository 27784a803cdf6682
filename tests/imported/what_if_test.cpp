// SPDX-License-Identifier: Apache-2.0
#include "src/imported/what_if.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/pass_times.hpp"

#include "src/imported/measured_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace vocabpipe::imported {
namespace {

using ::testing::HasSubstr;

/// A run of a family's passes as time_passes() times them: passes of 1000 and 2000 ns, in the last
/// stage three times as long, messages of 50 ns.
RecordedRun timed_run(const std::string& family, int ranks, int microbatches, int64_t factor = 3) {
    ScheduleOptions options{.ranks = ranks, .microbatches = microbatches, .vocab_size = 4};
    options.costs = PassCosts::uniform(1000, 2000, 0);
    options.costs.hop = 50;
    const Schedule placed = placement_of(family, options);
    options.costs.stage.assign(static_cast<size_t>(placed.stages), options.costs.stage.front());
    for (int64_t& ns : options.costs.stage.back()) ns *= factor;
    const Schedule schedule = make_schedule(family, options);
    const PassTimes times = time_passes(schedule, options.costs);
    MeasuredRun run{.title = "made up",
                    .stages = schedule.stages,
                    .microbatches = microbatches,
                    .rank_of_stage = schedule.rank_of_stage};
    run.hosts.resize(static_cast<size_t>(ranks));
    MeasuredStep& step = run.steps.emplace_back(static_cast<size_t>(ranks));
    for (size_t rank = 0; rank < step.size(); ++rank) {
        for (size_t i = 0; i < schedule.passes[rank].size(); ++i) {
            const Pass& pass = schedule.passes[rank][i];
            if (!traits(pass.op).has_stage) continue;
            step[rank].push_back(
                {.pass = pass, .begin_ns = times.begin[rank][i], .end_ns = times.end[rank][i]});
        }
    }
    const StepIndex index(step, run.stages);
    for (std::vector<MeasuredPass>& list : step) {
        for (MeasuredPass& one : list) {
            const auto from = index.input_of(one.pass);
            if (!from || &step[static_cast<size_t>(from->rank)] == &list) continue;
            one.arrived_ns = step[static_cast<size_t>(from->rank)][from->position].end_ns + 50;
            one.posted_ns = 0;
        }
    }
    return record_step(run, 0);
}

TEST(StepTimes, AreReplayedToTheNanosecond) {
    for (const char* const family : {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v"}) {
        const RecordedRun run = timed_run(family, 4, 8);
        const StepTimes times = step_times(run);
        EXPECT_EQ(times.message_ns, 50) << family;
        EXPECT_EQ(times.measured_ns, summarize(run).makespan_ns) << family;
        EXPECT_EQ(replay_own_ns(times), times.measured_ns) << family;
        EXPECT_EQ(replay_ns(times.schedule, times.mean_costs()), times.measured_ns) << family;
    }
}

TEST(WhatIf, FindsTheOutputLayerAndWhatSharingItSaves) {
    const WhatIf found = what_if(timed_run("1f1b", 4, 16));
    EXPECT_NEAR(found.output_layer_share, 2.0 / 3, 1e-3);
    EXPECT_TRUE(found.share_is_estimated);
    const auto step_of = [&](const std::string& name, VocabMode mode) -> int64_t {
        for (const Alternative& one : found.alternatives) {
            if (one.schedule == name && one.mode == mode) return one.step_ns;
        }
        ADD_FAILURE() << name;
        return 0;
    };
    // The same schedule with the output layer apart takes what the run took.
    EXPECT_NEAR(static_cast<double>(step_of("1f1b", VocabMode::none)),
                static_cast<double>(found.measured_ns),
                0.01 * static_cast<double>(found.measured_ns));
    // 16 microbatches of 9000 ns on the last rank; even shares make it 3000 + 6000 / 4.
    EXPECT_LT(step_of("1f1b", VocabMode::one_barrier), 3 * found.measured_ns / 4);
    EXPECT_GT(step_of("1f1b", VocabMode::one_barrier), 16 * 4500);
}

TEST(WhatIf, BoundsEveryOrderOfTheSamePassesFromBelow) {
    for (const char* const family : {"1f1b", "gpipe", "interleaved", "zb-h1"}) {
        const WhatIf found = what_if(timed_run(family, 4, 8));
        EXPECT_LE(found.bound_ns, found.measured_ns) << family;
        // The last rank has all of its work, and the first stages come before it.
        EXPECT_GE(found.bound_ns, 8 * 9000 / (std::string(family) == "interleaved" ? 2 : 1))
            << family;
    }
    // One microbatch has no other order: the bound is the step without its messages.
    const WhatIf one = what_if(timed_run("1f1b", 4, 1));
    EXPECT_EQ(one.bound_ns, one.measured_ns - 6 * 50);
}

TEST(WhatIf, NamesTheRankThatIsSlow) {
    const WhatIf found = what_if(timed_run("1f1b", 4, 16));
    EXPECT_EQ(found.without_slow_rank_ns[0], found.own_ns);
    EXPECT_LT(found.without_slow_rank_ns[3], found.own_ns / 2);
    const std::string text = to_text(found, [](int64_t ns) { return std::to_string(ns); });
    EXPECT_THAT(text, HasSubstr("with rank 3 as fast as the median rank: "));
    EXPECT_THAT(text, HasSubstr("output layer and loss: 66.7 % of the last stage, by which it is "
                                "slower than the median of the others"));
}

TEST(WhatIf, TakesTheShareOfTheOutputLayerThatItIsTold) {
    const WhatIf found = what_if(timed_run("1f1b", 2, 8), {.output_layer_share = 0.5});
    EXPECT_EQ(found.output_layer_share, 0.5);
    EXPECT_FALSE(found.share_is_estimated);
    // With two stages nothing can be estimated.
    const WhatIf unknown = what_if(timed_run("1f1b", 2, 8));
    EXPECT_EQ(unknown.output_layer_share, 0);
    EXPECT_THAT(to_text(unknown, [](int64_t ns) { return std::to_string(ns); }),
                HasSubstr("add --output-layer-share"));
}

TEST(StepTimes, RefuseRunsThatAreNoPipeline) {
    RecordedRun run = timed_run("1f1b", 2, 2);
    run.mesh = {.pipeline = 1, .data = 2};
    EXPECT_THROW(static_cast<void>(step_times(run)), UsageError);
}

}  // namespace
}  // namespace vocabpipe::imported
