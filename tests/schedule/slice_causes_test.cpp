// SPDX-License-Identifier: Apache-2.0
// Why slices of a recorded run began, of runs that are small enough to be written down by hand.
#include "src/schedule/slice_causes.hpp"

#include <gtest/gtest.h>

namespace vocabpipe {
namespace {

constexpr uint32_t kNone = RecordedRun::kNone;

RecordedRun::Slice slice(uint16_t rank, Lane lane, int64_t begin_ns, int64_t end_ns,
                         uint32_t waited_for = kNone, uint32_t order = kNone) {
    return {.begin_ns = begin_ns,
            .end_ns = end_ns,
            .cpu_ns = end_ns - begin_ns,
            .waited_for = waited_for,
            .order = order,
            .rank = rank,
            .lane = lane};
}

RecordedRun run_of(std::vector<RecordedRun::Slice> slices) {
    RecordedRun run;
    run.ranks = 2;
    run.names = {"pass"};
    run.slices = std::move(slices);
    return run;
}

// An executed pass names what gives it its input. Where its rank was busy for longer than that, the
// pass before it held it up.
TEST(SliceCauses, PassThatItsOwnRankHeldUpWaitedForThePassBeforeIt) {
    const RecordedRun run = run_of({
        slice(0, Lane::compute, 0, 392),
        slice(0, Lane::compute, 393, 500, /*waited_for=*/2),
        slice(0, Lane::backward, 100, 382),
    });
    EXPECT_EQ(slice_causes(run)[1].slice, 0U);
    EXPECT_EQ(slice_causes(run)[0].slice, kNone);
}

TEST(SliceCauses, PassOfAnIdleRankWaitedForItsInput) {
    const RecordedRun run = run_of({
        slice(0, Lane::compute, 0, 200),
        slice(0, Lane::compute, 383, 500, /*waited_for=*/2),
        slice(0, Lane::backward, 100, 382),
    });
    EXPECT_EQ(slice_causes(run)[1].slice, 2U);
}

TEST(SliceCauses, MessageBeganWhenItsLastMemberWasReady) {
    const RecordedRun run = run_of({
        slice(0, Lane::compute, 0, 300),
        slice(0, Lane::forward, 301, 320, /*waited_for=*/0, /*order=*/7),
        slice(1, Lane::compute, 321, 400, /*waited_for=*/3),
        slice(1, Lane::forward, 5, 320, kNone, /*order=*/7),
    });
    const std::vector<SliceCause> causes = slice_causes(run);
    EXPECT_EQ(causes[3].slice, 0U);
    EXPECT_EQ(causes[3].member, 1U);
    EXPECT_EQ(causes[1].member, 1U);
    const std::vector<PathPiece> path = critical_path(run, causes);
    ASSERT_EQ(path.size(), 3U);
    EXPECT_EQ(path[0].slice, 2U);
    EXPECT_EQ(path[1].slice, 3U);
    EXPECT_EQ(path[1].begin_ns, 301);  // not when its receiver was posted
    EXPECT_EQ(path[1].end_ns, 320);
    EXPECT_EQ(path[2].slice, 0U);
    EXPECT_EQ(path[2].begin_ns, 0);
}

// A lane starts its messages in order: one that was ready earlier waited for what the one in front
// waited for.
TEST(SliceCauses, MessageBehindAnotherOneWaitedForTheSame) {
    const RecordedRun run = run_of({
        slice(0, Lane::compute, 0, 50),
        slice(0, Lane::compute, 50, 300),
        slice(0, Lane::forward, 301, 320, /*waited_for=*/1),
        slice(0, Lane::forward, 302, 330, /*waited_for=*/0),
    });
    EXPECT_EQ(slice_causes(run)[3].slice, 1U);
}

TEST(CriticalPathOfARecordedRun, EndsWhereClocksOfRanksDisagree) {
    // Each message seems to end before what caused it: no path may go round for ever.
    const RecordedRun run = run_of({
        slice(0, Lane::compute, 10, 20, /*waited_for=*/1),
        slice(0, Lane::forward, 10, 12, /*waited_for=*/0, /*order=*/1),
        slice(1, Lane::forward, 9, 11, kNone, /*order=*/1),
    });
    EXPECT_LE(critical_path(run, slice_causes(run)).size(), run.slices.size());
}

}  // namespace
}  // namespace vocabpipe
