// SPDX-License-Identifier: Apache-2.0
// Reports: the JSON holds the plan, the page holds the JSON and nothing from elsewhere.
#include "tests/plan/plan_cases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace vocabpipe::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

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
    EXPECT_THAT(page, HasSubstr("\"version\": 2"));
    EXPECT_THAT(page, Not(HasSubstr("/*PLAN*/null")));
    EXPECT_EQ(page.find("</script>"), page.rfind("</script>"));
    EXPECT_THAT(page, Not(HasSubstr("src=")));
    EXPECT_THAT(page, Not(HasSubstr("href=")));
    EXPECT_THAT(page, Not(HasSubstr("url(")));
    EXPECT_THAT(page, Not(HasSubstr("@import")));
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
