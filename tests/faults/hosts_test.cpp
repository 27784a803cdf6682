// SPDX-License-Identifier: Apache-2.0
// Training over two hosts with MPI over TCP, and what becomes of one when the other vanishes.
#include "tests/faults/two_hosts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

using std::chrono::seconds;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr seconds kStart{30};  // on a machine that others use as well
constexpr seconds kEnd{20};
constexpr int kRanksPerHost = 2;

class Hosts : public ::testing::Test {
protected:
    void SetUp() override {
        if (!hosts_.missing().empty()) GTEST_SKIP() << "SKIPPED: " << hosts_.missing();
        write_dataset(data_, some_tokens(5000));
    }

    /// Trains for ever on both hosts, saving now and then, until some steps are saved.
    [[nodiscard]] Arguments endless() const {
        return small_model(data_) +
               Arguments{
                   "--train-iters",      "10000000", "--save",      saved_, "--save-interval", "5",
                   "--save-total-limit", "2",        "--async-save"};
    }
    /// What is left can be gone on from.
    void expect_loadable() {
        Job job(folder_, on_threads(2 * kRanksPerHost, endless() + Arguments{"--load", saved_}));
        (void)job.wait_for_output("checksums match", kStart);
        (void)job.wait_for_output(" iteration ", kStart);
        job.signal(SIGUSR1);
        EXPECT_EQ(job.wait(kEnd), 0) << job.error();
    }
    /// The launcher names the host that it lost; ranks of the other one say in a line each what
    /// they waited for, unless they are inside of MPI, which at that time reports its own errors
    /// and may not return.
    static void expect_reports(const std::string& error) {
        EXPECT_THAT(error, ContainsRegex("Remote daemon: .* on node beta"));
        const auto lines = lines_with(error, "train_gpt: error: ");
        for (const std::string& line : lines) {
            EXPECT_THAT(line, AnyOf(ContainsRegex("rank [01]: step [0-9]+: .*waits .*for [0-9.]+ "
                                                  "s; told to end: the launcher lost another rank"),
                                    ContainsRegex("rank [01]: told to end while it waited for the "
                                                  "other ranks between steps")));
        }
    }

    TwoHosts hosts_;
    TempFolder folder_;
    std::string data_ = folder_ / "toy";
    std::string saved_ = folder_ / "saved";
};

TEST_F(Hosts, TwoTrainToTheBitAsOneDoes) {
    for (const char* pipeline : {"4", "2"}) {  // ranks of a pipeline
        SCOPED_TRACE(pipeline);
        const Arguments three =
            small_model(data_) +
            Arguments{"--train-iters", "3", "--pipeline-model-parallel-size", pipeline};
        Job one(folder_,
                on_threads(2 * kRanksPerHost, three + Arguments{"--metrics", folder_ / "one"}));
        ASSERT_EQ(one.wait(kStart), 0) << one.error();
        const int64_t sent_before = hosts_.sent_bytes();
        Job two(folder_, hosts_.under_mpirun(kRanksPerHost,
                                             three + Arguments{"--metrics", folder_ / "two"}));
        ASSERT_EQ(two.wait(kStart), 0) << two.error();
        EXPECT_EQ(curve(folder_ / "one"), curve(folder_ / "two"));
        for (int rank = 0; rank < 2 * kRanksPerHost; ++rank) {  // the table at the start
            const std::string host = TwoHosts::kNames[rank >= kRanksPerHost];
            EXPECT_THAT(two.output(),
                        ContainsRegex("\n   " + std::to_string(rank) + " [^\n]* " + host + "\n"));
        }
        // Eight microbatches of 32 tokens of 32 fp32 numbers, three times.
        EXPECT_GT(hosts_.sent_bytes() - sent_before, 3 * 8 * 32 * 32 * 4);
        EXPECT_THAT(hosts_.left_over(seconds(5)), IsEmpty());
    }
}

TEST_F(Hosts, TensorRanksOfTwoTrainToTheBitAsThoseOfOneDo) {
    struct Case {
        int ranks_per_host;
        bool across;  // the ranks of a stage are on both hosts
    };
    for (const Case& c : {Case{1, true}, Case{2, false}}) {
        SCOPED_TRACE(c.ranks_per_host);
        const Arguments three = small_model(data_) + Arguments{"--train-iters", "3",
                                                               "--tensor-model-parallel-size", "2"};
        Job one(folder_,
                on_threads(2 * c.ranks_per_host, three + Arguments{"--metrics", folder_ / "one"}));
        ASSERT_EQ(one.wait(kStart), 0) << one.error();
        EXPECT_THAT(one.output(), Not(HasSubstr("warning: --")));
        Job two(folder_, hosts_.under_mpirun(c.ranks_per_host,
                                             three + Arguments{"--metrics", folder_ / "two"}));
        ASSERT_EQ(two.wait(kStart), 0) << two.error();
        EXPECT_EQ(curve(folder_ / "one"), curve(folder_ / "two"));
        const auto warning = HasSubstr(
            "\nwarning: --tensor-model-parallel-size 2: ranks 0-1 share a stage across the\n"
            "  hosts alpha and beta; every layer waits for the network");
        if (c.across) {
            EXPECT_THAT(two.output(), warning);
        } else {
            EXPECT_THAT(two.output(), Not(HasSubstr("warning: --")));
        }
        EXPECT_THAT(hosts_.left_over(seconds(5)), IsEmpty());
    }
}

TEST_F(Hosts, ThatLoseTheirCableEndWhenTheLauncherMissesOne) {
    Job job(folder_, hosts_.under_mpirun(kRanksPerHost, endless()));
    ASSERT_TRUE(job.wait_for_output("saved ", kStart));
    hosts_.pull_cable();
    EXPECT_NE(job.wait(kEnd), 0);  // the launcher's own code
    expect_reports(job.error());
    EXPECT_THAT(hosts_.left_over(kEnd), IsEmpty());  // on either side
    expect_loadable();
}

TEST_F(Hosts, OneOfWhichDiesEndTheRunOnTheOther) {
    Job job(folder_, hosts_.under_mpirun(kRanksPerHost, endless()));
    ASSERT_TRUE(job.wait_for_output("saved ", kStart));
    hosts_.kill_host(1);
    EXPECT_NE(job.wait(kEnd), 0);
    expect_reports(job.error());
    EXPECT_THAT(hosts_.left_over(seconds(5)), IsEmpty());
    expect_loadable();
}

TEST_F(Hosts, EndWhenTheOneThatMpirunRunsOnDies) {
    Job job(folder_, hosts_.under_mpirun(kRanksPerHost, endless()));
    ASSERT_TRUE(job.wait_for_output("saved ", kStart));
    hosts_.kill_host(0);
    EXPECT_EQ(job.wait(kEnd), 128 + SIGKILL);
    EXPECT_THAT(hosts_.left_over(kEnd), IsEmpty());
    expect_loadable();
}

}  // namespace
}  // namespace vocabpipe::testing
