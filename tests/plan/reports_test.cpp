// SPDX-License-Identifier: Apache-2.0
// Reports: the JSON holds the plan, the page holds the JSON and nothing from elsewhere.
#include "tests/plan/plan_cases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

/// Takes the elements with JSON out of the page, and returns what they hold.
std::vector<std::string> data_of(std::string& page) {
    constexpr std::string_view kBegin = "<script type=\"application/json\"";
    constexpr std::string_view kEnd = "</script>";
    std::vector<std::string> data;
    for (size_t at = page.find(kBegin); at != std::string::npos; at = page.find(kBegin)) {
        const size_t begin = page.find('>', at) + 1;
        const size_t end = page.find(kEnd, at);
        data.push_back(page.substr(begin, end - begin));
        page.erase(at, end + kEnd.size() - at);
    }
    return data;
}

Plan two_rows() {
    PlanOptions options = small_plan();
    options.schedules = {"1f1b"};
    options.vocab_modes = {VocabMode::none, VocabMode::one_barrier};
    options.model.name = "</script><b>\"\xff";
    return make_plan(options);
}

TEST(PlanReports, JsonHoldsEveryRowAndFigure) {
    const Plan plan = two_rows();
    const json read = json::parse(plan_json(plan));
    EXPECT_EQ(read["version"], 2);
    ASSERT_EQ(read["rows"].size(), 2U);
    EXPECT_EQ(read["rows"][0]["microbatches"], 16);
    EXPECT_EQ(read["rows"][0]["step_ns"], plan.rows[0].step_ns);
    EXPECT_EQ(read["rows"][0]["worst_rank"]["total_bytes"], plan.rows[0].worst.total());
    EXPECT_EQ(read["rows"][0]["ranks"].size(), 4U);
    int64_t sum = 0;
    for (const MemoryPurpose& purpose : memory_purposes()) {
        sum += read["rows"][0]["worst_rank"][std::string(purpose.name) + "_bytes"].get<int64_t>();
    }
    EXPECT_EQ(sum, plan.rows[0].worst.total());
    EXPECT_EQ(read["device"]["peak_tflops"]["basis"], "published");
    EXPECT_EQ(read["sensitivity"].size(), 12U);
}

TEST(PlanReports, TextShowsTheBestRowsAndTheBasisOfEfficiencies) {
    const Plan plan = two_rows();
    const std::string text = plan_text(plan, 1);
    EXPECT_THAT(text, HasSubstr("1 of 2 rows that fit shown."));
    EXPECT_THAT(text, HasSubstr("one_barrier"));
    EXPECT_THAT(text, HasSubstr("dense_efficiency"));
    EXPECT_THAT(text, HasSubstr("measured"));
}

TEST(PlanReports, PageIsSelfContainedAndKeepsNamesFromEndingItsScript) {
    const std::string page = plan_html(two_rows());
    std::string rest = page;  // without data: timelines are pages of their own
    const std::vector<std::string> data = data_of(rest);
    ASSERT_EQ(data.size(), 4U);  // the plan, the parts of a timeline, two rows
    EXPECT_THAT(rest, Not(HasSubstr("/* s")));
    EXPECT_THAT(rest, Not(HasSubstr("<!-- data -->")));
    EXPECT_EQ(rest.find("</script>"), rest.rfind("</script>"));
    EXPECT_THAT(rest, Not(HasSubstr("src=")));
    EXPECT_THAT(rest, Not(HasSubstr("href=")));
    EXPECT_THAT(rest, Not(HasSubstr("url(")));
    EXPECT_THAT(rest, Not(HasSubstr("@import")));
}

TEST(PlanReports, PageHoldsThePlanAndTheTimelinesOfItsBestRows) {
    PlanOptions options = small_plan();
    options.sensitivity_rows = 0;
    options.schedules = {"1f1b", "zb-v", "v-half", "gpipe"};
    const Plan plan = make_plan(options);
    ASSERT_GT(plan.rows.size(), 11U);
    std::string page = plan_html(plan);
    const std::vector<std::string> data = data_of(page);
    ASSERT_EQ(data.size(), 12U);
    EXPECT_EQ(json::parse(data[0]), json::parse(plan_json(plan)));
    const json parts = json::parse(data[1]);
    EXPECT_THAT(parts["before"].get<std::string>(), ::testing::StartsWith("<!DOCTYPE html>"));
    EXPECT_THAT(parts["after"].get<std::string>(), ::testing::EndsWith("</html>\n"));
    for (size_t row = 0; row < 10; ++row) {
        const std::string run = json::parse(data[2 + row]).get<std::string>();
        const size_t begin = run.find('>') + 1;
        const json timeline = json::parse(run.substr(begin, run.rfind('<') - begin));
        EXPECT_EQ(timeline["title"], to_string(plan.rows[row].candidate));
        EXPECT_EQ(timeline["ranks"], 4);
        EXPECT_NEAR(timeline["makespan"].get<double>(), static_cast<double>(plan.rows[row].step_ns),
                    1)
            << row;
        EXPECT_NEAR(timeline["bubble"].get<double>(), plan.rows[row].bubble, 1e-9) << row;
        EXPECT_EQ(timeline["memory"].size(), 4U);
    }
}

TEST(PlanReports, PageLeavesOutTimelinesOfTooManyPasses) {
    PlanOptions options = small_plan();
    options.sensitivity_rows = 0;
    options.schedules = {"1f1b"};
    options.vocab_modes = {VocabMode::none, VocabMode::one_barrier};
    options.evaluation = Evaluation::pass_times;
    options.global_batch_size = 1000;  // 16 and 28 passes of a microbatch, at most 25,000
    const Plan plan = make_plan(options);
    ASSERT_EQ(plan.rows.front().candidate.vocab_mode, VocabMode::one_barrier);
    std::string page = plan_html(plan);
    EXPECT_EQ(data_of(page).size(), 3U);
    EXPECT_THAT(plan_html(plan), HasSubstr("data-row=\"1\""));
}

TEST(PlanText, SaysWhetherAnotherRowWinsWithOtherEfficiencies) {
    Plan plan = two_rows();
    for (Sensitivity& s : plan.sensitivity) s.best_row = 0;
    EXPECT_THAT(plan_text(plan, 2), HasSubstr("The winner does not change."));
    Sensitivity& higher = plan.sensitivity[1];
    higher.best_row = 1;
    higher.step_ns = 2 * higher.best_step_ns;
    const std::string text = plan_text(plan, 2);
    EXPECT_THAT(text, Not(HasSubstr("The winner does not change.")));
    EXPECT_THAT(text, HasSubstr("+10 %: " + to_string(plan.rows[1].candidate)));
    EXPECT_THAT(text, HasSubstr("(100.00 % ahead)"));
}

TEST(PlanText, CountsStagesWithAsManyLayersUpToTheLastStage) {
    Plan plan = two_rows();
    std::vector<int>& layers = plan.rows.front().candidate.layers_per_stage;
    layers = {4, 4, 4, 5, 5, 0, 0};
    layers.pop_back();  // what lies behind the last stage is none
    const std::string text = plan_text(plan, 1);
    EXPECT_THAT(text, HasSubstr("3x4 2x5 1x0\n"));
    EXPECT_THAT(text, HasSubstr("1 stage of the best row holds no transformer layer."));
}

}  // namespace
}  // namespace vocabpipe::testing
