// SPDX-License-Identifier: Apache-2.0
#include "src/train/measure/run_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "src/support/text_layout.hpp"
#include "tests/train/data/temp_folder.hpp"

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

/// Every figure is another one.
RunReport whole_report() {
    constexpr int64_t kMiB = 1 << 20;
    return {.schedule = "zb",
            .vocab_mode = "one_barrier",
            .devices = {"gpu A", "gpu B"},
            .tokens_per_step = 4096,
            .first_loss = 5.5,
            .last_loss = 4.25,
            .simulated_step_ns = 4'000'000,
            .simulated_bubble = 0.125,
            .predicted_step_ns = 900'000,
            .measured_step_ns = 1'000'000,
            .fixed_step_ns = 50'000,
            .shared_cores = 1,
            .ranks_sharing = 2,
            .replayed_ns = 1'100'000,
            .executed_ns = 1'000'000,
            .ranks = {{.busy_share = 0.5,
                       .bubble = 0.25,
                       .median_step_ns = 2'000'000,
                       .live_peak_bytes = kMiB * 3 / 2,
                       .arena_bytes = 2 * kMiB,
                       .persistent_bytes = 3 * kMiB,
                       .start_bytes = 4 * kMiB,
                       .snapshot_bytes = 5 * kMiB,
                       .kernel_bytes = 6 * kMiB,
                       .measured_peak_bytes = 25 * kMiB,
                       .memory_of = 0},
                      {.busy_share = 0.75,
                       .bubble = 0.35,
                       .median_step_ns = 3'000'000,
                       .live_peak_bytes = kMiB,
                       .arena_bytes = 2 * kMiB,
                       .persistent_bytes = 4 * kMiB,
                       .start_bytes = 8 * kMiB,
                       .snapshot_bytes = 16 * kMiB,
                       .kernel_bytes = 32 * kMiB,
                       .measured_peak_bytes = 50 * kMiB,
                       .memory_of = 1}}};
}

const std::string kFigures =
    "tokens/s 2048000.0 | loss 5.5000 -> 4.2500 | bubble 30.0 %\n"
    "one core per rank (simulated): tokens/s 1024000.0 | bubble 12.5 %\n";

TEST(RunReport, IsPrintedAsAWhole) {
    RunReport report = whole_report();
    const std::string ends =
        "prediction: step 0.9 ms simulated from measured passes (0.05 ms of it outside\n"
        "  the program), 1.0 ms measured (median), error -10.0 % | memory error +24.0 %\n"
        "2 ranks share 1 core: passes take longer while other ranks compute, which the\n"
        "  prediction does not include\n"
        "last step: 1.1 ms simulated with the measured length of every pass, 1.0 ms\n"
        "  executed, error +10.0 %\n";
    const std::string head =
        "\n"
        "rank  busy  bubble  live peak  arena  persistent  predicted  measured  error\n"
        "         %       %        MiB    MiB         MiB        MiB       MiB      %\n";
    EXPECT_EQ(printed(report),
              head +
                  "   0  50.0    25.0        1.5    2.0         3.0       20.0      25.0  -20.0\n"
                  "   1  75.0    35.0        1.0    2.0         4.0       62.0      50.0  +24.0\n" +
                  kFigures + ends);
    // Two ranks in the memory of the first: 20 MiB, and 62 without another start of 8.
    report.ranks[1].memory_of = 0;
    const std::string unknown =
        "   0  50.0    25.0        1.5    2.0         3.0          -         -      -\n"
        "   1  75.0    35.0        1.0    2.0         4.0          -         -      -\n";
    const std::string together =
        std::string(ends).replace(ends.find("+24.0"), 5, "+196.0").replace(0, 0, "");
    EXPECT_EQ(printed(report), head + unknown +
                                   "gpu A of 2 ranks: predicted 74.0 MiB, measured 25.0 MiB\n" +
                                   kFigures + together);
    report.one_process = true;
    report.measured_step_ns = 0;
    EXPECT_EQ(printed(report), head + unknown +
                                   "process of all ranks: predicted 74.0 MiB, measured 25.0 MiB\n" +
                                   kFigures);
}

TEST(RunReport, IsWrittenAsAWhole) {
    const testing::TempFolder folder;
    const auto written = [&](const RunReport& report) {
        write_report(folder / "r.json", report);
        const std::string text = testing::read_file(folder / "r.json");
        EXPECT_TRUE(text.ends_with("\n}\n")) << "two spaces for each level, and a line break";
        return nlohmann::json::parse(text);
    };
    RunReport report = whole_report();
    nlohmann::json expected = nlohmann::json::parse(R"({
        "schedule": "zb", "vocab_mode": "one_barrier", "tokens_per_second": 2048000.0,
        "pass_time_over_cpu": 1.0, "first_loss": 5.5, "last_loss": 4.25, "bubble": 0.3,
        "simulated_tokens_per_second": 1024000.0, "simulated_bubble": 0.125,
        "predicted_step_seconds": 0.0009, "measured_step_seconds": 0.001,
        "fixed_step_seconds": 5e-5, "shared_cores": 1, "ranks": [
        {"device": "gpu A", "busy_share": 0.5, "bubble": 0.25, "live_peak_bytes": 1572864,
         "arena_bytes": 2097152, "persistent_bytes": 3145728, "snapshot_bytes": 5242880,
         "predicted_peak_bytes": 20971520, "measured_peak_bytes": 26214400},
        {"device": "gpu B", "busy_share": 0.75, "bubble": 0.35, "live_peak_bytes": 1048576,
         "arena_bytes": 2097152, "persistent_bytes": 4194304, "snapshot_bytes": 16777216,
         "predicted_peak_bytes": 65011712, "measured_peak_bytes": 52428800}]})");
    expected["step_error"] = 0.9 - 1;
    expected["replay_error"] = 1.1 - 1;
    expected["memory_error"] = 62.0 / 50 - 1;
    const auto near = [](nlohmann::json json) {  // all digits but those that rounding changes
        for (auto& value : json) {
            if (value.is_number_float()) value = format("%.12g", value.get<double>());
        }
        return json;
    };
    EXPECT_EQ(near(written(report)), near(expected));
    report.ranks[1].memory_of = 0;
    const nlohmann::json shared = written(report);
    for (const nlohmann::json& rank : shared.at("ranks")) {
        EXPECT_EQ(rank.at("predicted_peak_bytes"), 74 << 20);
        EXPECT_EQ(rank.at("measured_peak_bytes"), 25 << 20);
    }
    report.ranks[0].measured_peak_bytes = report.ranks[1].measured_peak_bytes = 0;
    report.measured_step_ns = report.executed_ns = 0;
    const nlohmann::json unknown = written(report);
    EXPECT_TRUE(unknown.at("memory_error").is_null());
    EXPECT_EQ(unknown.at("step_error"), 0);
    EXPECT_EQ(unknown.at("replay_error"), 0);
}

TEST(RunReport, HasTheErrorOfMemoryThatIsFurthestFromNone) {
    RunReport report = two_ranks();
    EXPECT_DOUBLE_EQ(report.memory_error(), -0.2);
    report.ranks[1].persistent_bytes = 130 << 20;
    EXPECT_DOUBLE_EQ(report.memory_error(), 0.3);
    report.ranks[1].measured_peak_bytes = 0;  // not known
    EXPECT_DOUBLE_EQ(report.memory_error(), -0.2);
    EXPECT_TRUE(report.memory_measured());
    report.ranks[0].measured_peak_bytes = 0;
    EXPECT_EQ(report.memory_error(), 0);
    EXPECT_FALSE(report.memory_measured());
}

TEST(RankUsage, CountsEveryMomentOfWorkOnce) {
    std::mt19937 random(5);
    for (int round = 0; round < 300; ++round) {
        RankUsage usage;
        int64_t busy = 0, wall = 0, spans = 0;
        std::vector<int64_t> durations;
        const int steps = 1 + static_cast<int>(random() % 4);
        for (int step = 0; step < steps; ++step) {
            Timeline timeline;
            std::set<int64_t> moments;
            int64_t cpu = 0;
            for (size_t i = random() % 6; i > 0; --i) {
                Span span;
                span.lane = random() % 3 == 0   ? Lane::local
                            : random() % 3 == 0 ? Lane::collective
                                                : Lane::compute;
                span.begin_ns = static_cast<int64_t>(random() % 40);
                span.end_ns = span.begin_ns + 1 + static_cast<int64_t>(random() % 9);
                span.cpu_ns = static_cast<int64_t>(random() % 12);
                timeline.spans.push_back(span);
                if (span.lane == Lane::collective) continue;
                cpu += span.cpu_ns;
                for (int64_t ns = span.begin_ns; ns < span.end_ns; ++ns) moments.insert(ns);
            }
            const auto duration = static_cast<int64_t>(50 + random() % 50);
            usage.add_step(timeline, duration);
            if (step == 0 && steps > 1) continue;
            busy += std::min(cpu, std::ssize(moments));
            wall += duration;
            if (!moments.empty()) spans += *moments.rbegin() + 1 - *moments.begin();
            durations.push_back(duration);
        }
        std::ranges::sort(durations);
        ASSERT_EQ(usage.median_step_ns(), durations[durations.size() / 2]) << round;
        ASSERT_DOUBLE_EQ(usage.busy_share(), static_cast<double>(busy) / static_cast<double>(wall));
        ASSERT_NEAR(usage.bubble(),
                    spans == 0 ? 0 : 1 - static_cast<double>(busy) / static_cast<double>(spans),
                    1e-12);
        usage.forget_durations();
        ASSERT_EQ(usage.median_step_ns(), 0);
    }
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
