// SPDX-License-Identifier: Apache-2.0
// The scripts of a plan's page in node: filters, the frontier, axes and names.
#include "tests/plan/plan_cases.hpp"
#include "tests/tool/run_program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using Json = nlohmann::json;

class PlanPageScripts : public ::testing::Test {
protected:
    void SetUp() override {
        if (run_shell("command -v node").exit_code != 0) GTEST_SKIP() << "node is not installed";
        PlanOptions options = small_plan();
        options.schedules = {"1f1b", "zb-v"};
        options.sensitivity_rows = 0;
        options.micro_batch_sizes = {1, 2};
        options.memory_gib = 6;
        plan_ = make_plan(options);
        const TempFolder folder;
        write_file(folder / "page.html", plan_html(plan_));
        const Outcome outcome =
            run_shell("node '" VOCABPIPE_PAGE_TEST_SCRIPT "' '" + (folder / "page.html") + "'");
        ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
        told_ = Json::parse(outcome.output);
    }
    template <typename Wanted>
    int64_t count(const Wanted& wanted) const {
        return std::count_if(plan_.rows.begin(), plan_.rows.end(), wanted);
    }

    Plan plan_;
    Json told_;
};

TEST_F(PlanPageScripts, FilterRowsByWordsAndConditions) {
    const auto zb = count([](const auto& row) { return row.candidate.schedule == "zb-v"; });
    const auto two = count([](const auto& row) { return row.candidate.micro_batch_size == 2; });
    const auto fits = count([](const auto& row) { return row.spare_bytes > 0; });
    const std::ptrdiff_t all = std::ssize(plan_.rows);
    ASSERT_GT(zb, 0);
    ASSERT_GT(two, 0);
    ASSERT_GT(fits, 0);
    ASSERT_LT(fits, all);
    const Json& counts = told_.at("counts");
    EXPECT_EQ(counts.at("zb-v"), zb);
    EXPECT_EQ(counts.at("ZB one_barrier"), count([](const auto& row) {
                  return row.candidate.schedule == "zb-v" &&
                         row.candidate.vocab_mode == VocabMode::one_barrier;
              }));
    EXPECT_EQ(counts.at("schedule=1f1b"), all - zb);
    EXPECT_EQ(counts.at("p=4"), all);
    EXPECT_EQ(counts.at("p<4"), 0);
    EXPECT_EQ(counts.at("peak>=0"), all);
    EXPECT_EQ(counts.at("peak<0"), 0);
    EXPECT_EQ(counts.at("zb-v p=1"), 0);
    EXPECT_EQ(counts.at("spare>0"), fits);
    EXPECT_EQ(counts.at("b=2"), two);
    EXPECT_EQ(counts.at("C=1"), all);
    EXPECT_EQ(counts.at("C>1"), 0);
    EXPECT_EQ(counts.at(""), all);
}

TEST_F(PlanPageScripts, JoinRowsThatNoOtherRowBeatsInTimeAndMemory) {
    // 4 GiB in 5 s, 6 GiB in 3 s and 8 GiB in 9 s are beaten; of two equal rows one is enough.
    EXPECT_EQ(told_.at("frontier"), (Json{{4, 4}, {5, 3}, {7, 2}}));
    std::vector<size_t> best;
    for (size_t i = 0; i < plan_.rows.size(); ++i) {
        const PlanRow& row = plan_.rows[i];
        const auto beats = [&](const PlanRow& other) {
            return other.step_ns <= row.step_ns && other.worst.total() <= row.worst.total() &&
                   (other.step_ns < row.step_ns || other.worst.total() < row.worst.total());
        };
        if (std::ranges::none_of(plan_.rows, beats)) best.push_back(i);
    }
    std::vector<size_t> told = told_.at("ofPlan");
    std::ranges::sort(told);
    EXPECT_EQ(told, best);
    EXPECT_GE(best.size(), 2U);
}

TEST_F(PlanPageScripts, SpreadAxesOverTheirValues) {
    EXPECT_EQ(told_.at("linear").at("ticks"), (Json{20, 30, 40, 50, 60}));
    EXPECT_NEAR(told_.at("linear").at("middle").get<double>(), 300, 1e-9);
    EXPECT_EQ(told_.at("linear").at("low"), true);
    EXPECT_EQ(told_.at("linear").at("high"), true);
    EXPECT_EQ(told_.at("log").at("ticks"), (Json{"1", "2", "5", "10", "20", "50", "100"}));
    EXPECT_NEAR(told_.at("log").at("middle").get<double>(), 0.5, 1e-9);
    EXPECT_NEAR(told_.at("one").get<double>(), 0.5, 1e-9);
}

TEST_F(PlanPageScripts, SayWhatWouldFitAndWhatShardingChanges) {
    const Json& advice = told_.at("advice");
    EXPECT_EQ(advice.at(0), "");
    EXPECT_EQ(
        advice.at(1),
        "The nearest row with --gpus 8: 1.0 GiB spare, 5.0 ms; with --micro-batch-size 1: 2.0 "
        "GiB too much, 7.5 ms.");
    const Json& names = told_.at("names");
    EXPECT_EQ(advice.at(2), "Sharded vocabulary layers: the best row with them (" +
                                names.at(1).get<std::string>() +
                                ") is 12.5 % faster and needs 2.0 % more memory than the best one "
                                "without (" +
                                names.at(0).get<std::string>() + ").");
}

TEST_F(PlanPageScripts, NameRowsAndWhatIsSpare) {
    for (size_t i = 0; i < plan_.rows.size(); ++i) {
        const std::string name = told_.at("names").at(i);
        const Candidate& candidate = plan_.rows[i].candidate;
        const std::string start = to_string(Candidate{.schedule = candidate.schedule,
                                                      .vocab_mode = candidate.vocab_mode,
                                                      .split = candidate.split,
                                                      .chunks = candidate.chunks,
                                                      .memory_limit = candidate.memory_limit});
        EXPECT_EQ(name, start + " p=4 t=1 d=1 e=1 b=" + std::to_string(candidate.micro_batch_size) +
                            " none");
        EXPECT_THAT(told_.at("spare").at(i).get<std::string>(),
                    ::testing::ContainsRegex(plan_.rows[i].fits() ? "^[0-9.]+ GiB spare"
                                                                  : "^[0-9.]+ GiB too much$"));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
