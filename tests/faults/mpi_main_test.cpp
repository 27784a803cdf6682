// SPDX-License-Identifier: Apache-2.0
// The main() of the tests under mpirun: a failure on one rank fails the launch and names the rank,
// a hang is ended by the watchdog.
#include "tests/faults/launch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

Arguments launch(const std::string& filter) {
    return {"env",
            "VOCABPIPE_TEST_TIMEOUT=1",
            VOCABPIPE_MPIRUN,
            "--oversubscribe",
            "-np",
            "2",
            VOCABPIPE_MPI_MAIN_TEST,
            "--gtest_also_run_disabled_tests",
            "--gtest_filter=" + filter,
            "--gtest_color=no"};
}

TEST(MpiMain, FailureOnOneRankFailsTheLaunchAndNamesTheRankOnEveryLine) {
    const TempFolder folder;
    Job job(folder, launch("*FailsOnRankOneOnly"));
    EXPECT_EQ(job.wait(seconds(30)), 1);
    EXPECT_THAT(job.output(), HasSubstr("[rank 1] OnPurpose.DISABLED_FailsOnRankOneOnly: "));
    EXPECT_THAT(job.output(), HasSubstr("[rank 1] second line"));
    EXPECT_THAT(job.output(), HasSubstr("FAILED on another rank"));
}

TEST(MpiMain, WatchdogEndsATestThatHangs) {
    const TempFolder folder;
    Job job(folder, launch("*HangsOnRankOneOnly:*PassesEverywhere"));
    EXPECT_EQ(job.wait(seconds(30)), 124);
    EXPECT_THAT(job.error(),
                HasSubstr("[rank 1] watchdog: OnPurpose.DISABLED_HangsOnRankOneOnly did not end"));
}

TEST(MpiMain, OneReportForAllRanksWhenAllIsWell) {
    const TempFolder folder;
    Job job(folder, launch("*PassesEverywhere"));
    EXPECT_EQ(job.wait(seconds(30)), 0);
    EXPECT_EQ(lines_with(job.output(), "[  PASSED  ]").size(), 1u) << job.output();
}

TEST(MpiMain, NoTestToRunIsAFailure) {
    const TempFolder folder;
    Job job(folder, launch("*NoSuchTest"));
    EXPECT_EQ(job.wait(seconds(30)), 1);
    EXPECT_THAT(job.output(), HasSubstr("no test matches"));
}

}  // namespace
}  // namespace vocabpipe::testing
