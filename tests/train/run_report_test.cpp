// SPDX-License-Identifier: Apache-2.0
#include "src/train/measure/run_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>
#include <string>

#include "src/support/text_layout.hpp"

namespace vocabpipe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string printed(const RunReport& report) {
    ::testing::internal::CaptureStdout();
    print_report(report);
    return ::testing::internal::GetCapturedStdout();
}

/// Two processes of 100 MiB each, of which 80 and 110 were predicted.
RunReport two_ranks() {
    constexpr int64_t kMiB = 1 << 20;
    RunReport report{.devices = {"host", "host"},
                     .tokens_per_step = 4096,
                     .first_loss = 5.5,
                     .last_loss = -std::numeric_limits<double>::quiet_NaN(),
                     .predicted_step_ns = 900'000,
                     .measured_step_ns = 1'000'000};
    for (const int rank : {0, 1}) {
        report.ranks.push_back({.busy_share = 0.5,
                                .bubble = 0.25,
                                .median_step_ns = 1'000'000,
                                .persistent_bytes = (rank == 0 ? 80 : 110) * kMiB,
                                .measured_peak_bytes = 100 * kMiB,
                                .memory_of = rank});
    }
    return report;
}

TEST(RunReport, TellsTokensPerSecondOfTheStepThatRanAndOfTheOneThatWasSimulated) {
    RunReport report = two_ranks();
    EXPECT_EQ(report.tokens_per_second(), 4096 / 0.001);
    EXPECT_EQ(report.simulated_tokens_per_second(), 0) << "nothing was simulated";
    report.simulated_step_ns = 2'000'000;
    EXPECT_EQ(report.simulated_tokens_per_second(), 4096 / 0.002);
    EXPECT_EQ(report.bubble(), 0.25);
    EXPECT_DOUBLE_EQ(report.step_error(), -0.1);
    report.ranks.clear();
    EXPECT_EQ(report.tokens_per_second(), 0);
    EXPECT_EQ(report.bubble(), 0);
}

TEST(RunReport, GivesOneErrorOfMemoryInTheTableAndBelow) {
    const std::string text = printed(two_ranks());
    EXPECT_THAT(text, HasSubstr(" 80.0     100.0  -20.0\n"));
    EXPECT_THAT(text, HasSubstr("110.0     100.0  +10.0\n"));
    EXPECT_THAT(text, HasSubstr("memory error -20.0 %")) << "that of the worst rank, as above";
}

TEST(RunReport, KeepsTo80ColumnsAlsoOfLargeRunsAndNanHasNoSign) {
    RunReport report = two_ranks();
    for (RankReport& rank : report.ranks) {
        rank.live_peak_bytes = rank.arena_bytes = int64_t{79} << 30;
        rank.persistent_bytes = rank.measured_peak_bytes = int64_t{79} << 30;
        rank.median_step_ns = 123'456'789'000;
    }
    report.predicted_step_ns = report.measured_step_ns = 123'456'789'000;
    std::istringstream lines(printed(report));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), kTextWidth) << line;
    EXPECT_THAT(printed(report), HasSubstr("loss 5.5000 -> nan |"));
    EXPECT_THAT(printed(report), Not(HasSubstr("-nan")));
}

TEST(RunReport, SaysWhereMemoryWasNotMeasured) {
    RunReport report = two_ranks();
    for (RankReport& rank : report.ranks) rank.measured_peak_bytes = 0;
    EXPECT_THAT(printed(report), HasSubstr(" 80.0         -      -\n"));
    EXPECT_THAT(printed(report), HasSubstr("| memory not measured"));
    EXPECT_THAT(printed(report), Not(HasSubstr("memory error")));
    report.one_process = true;
    for (RankReport& rank : report.ranks) rank.memory_of = 0;
    EXPECT_THAT(printed(report), HasSubstr("predicted 190.0 MiB, not measured, because /proc"));
}

/// A step in which one pass of `ns` ran.
Timeline step_of(int64_t ns) {
    Timeline timeline;
    Span span;
    span.lane = Lane::compute;
    span.end_ns = span.cpu_ns = ns;
    timeline.spans.push_back(span);
    return timeline;
}

TEST(RankUsage, OfOneStepIsThatStepAndOfMoreLeavesTheFirstOut) {
    RankUsage usage;
    usage.add_step(step_of(500), 1000);
    EXPECT_EQ(usage.median_step_ns(), 1000);
    EXPECT_DOUBLE_EQ(usage.busy_share(), 0.5);
    EXPECT_DOUBLE_EQ(usage.bubble(), 0);
    usage.add_step(step_of(100), 400);
    EXPECT_EQ(usage.median_step_ns(), 400);
    EXPECT_DOUBLE_EQ(usage.busy_share(), 0.25);
}

}  // namespace
}  // namespace vocabpipe
