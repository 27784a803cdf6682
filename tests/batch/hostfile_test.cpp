// SPDX-License-Identifier: Apache-2.0
// Several machines with a hostfile and ssh, as docs/clusters.md says.
#include "tests/batch/clone.hpp"
#include "tests/faults/two_hosts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace vocabpipe::testing {
namespace {

using std::chrono::seconds;
using ::testing::ContainsRegex;
using ::testing::IsEmpty;

constexpr seconds kTyped{60};  // on a machine that others use as well

TEST(Hostfile, StartsRanksOnBothMachinesWithTheBitsOfOne) {
    const TwoHosts hosts;
    if (!hosts.missing().empty()) GTEST_SKIP() << "SKIPPED: " << hosts.missing();
    const std::string missing = hosts.serve_ssh();
    if (!missing.empty()) GTEST_SKIP() << "SKIPPED: " << missing;
    ASSERT_FALSE(HasFailure());
    const TempFolder folder;
    const std::string clone = folder / "clone";
    const Arguments flags =
        small_model(clone + "/book") + Arguments{"--train-iters", "3", "--lr-wsd-decay-iters", "1"};
    make_clone(clone, flags + Arguments{"--metrics", clone + "/metrics"});
    std::string output;
    for (const std::string& command : documented_commands("On several machines, with a hostfile")) {
        Job job(folder, hosts.on(0, {"env", "-C", clone, "bash", "-c", command}));
        ASSERT_EQ(job.wait(kTyped), 0) << command << "\n" << job.error();
        output += job.output();
    }
    for (int rank = 0; rank < 4; ++rank) {  // the table at the start
        EXPECT_THAT(output, ContainsRegex("\n   " + std::to_string(rank) + " [^\n]* " +
                                          TwoHosts::kNames[rank / 2] + "\n"));
    }
    const Arguments whole = Arguments{"--config", VOCABPIPE_SOURCE "/examples/run.toml"} + flags;
    Job one(folder, on_threads(4, whole + Arguments{"--metrics", folder / "one"}));
    ASSERT_EQ(one.wait(kTyped), 0) << one.error();
    EXPECT_EQ(curve(clone + "/metrics"), curve(folder / "one"));
    EXPECT_THAT(left_over(clone, seconds(5)), IsEmpty());
}

}  // namespace
}  // namespace vocabpipe::testing
