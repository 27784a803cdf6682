// SPDX-License-Identifier: Apache-2.0
// Reports: the JSON holds the plan, the page holds the JSON and nothing from elsewhere.
#include "src/plan/report_parts.hpp"
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

constexpr int64_t kOneGib = int64_t{1} << 30;

/// Two rows of 10 GiB, the second one with little to spare.
Plan two_known_rows() {
    PlanRow first{.candidate = {.schedule = "1f1b",
                                .vocab_mode = VocabMode::one_barrier,
                                .layers_per_stage = {2, 2, 2, 2},
                                .mesh = {.pipeline = 4},
                                .microbatches = 16},
                  .step_ns = 123'456'789,
                  .tokens_per_second = 1234.6,
                  .mfu = 0.4567,
                  .bubble = 0.0123,
                  .worst = {.rank = 1,
                            .weights = kOneGib,
                            .gradients = kOneGib / 2,
                            .optimizer = 3 * kOneGib,
                            .activations = kOneGib / 4,
                            .vocabulary = kOneGib,
                            .reserve = kOneGib / 2},
                  .spare_bytes = 3 * kOneGib / 2};
    PlanRow second{.candidate = {.schedule = "v-search",
                                 .chunks = 2,
                                 .memory_limit = 6,
                                 .layers_per_stage = {1, 1, 1, 1, 1, 1, 1, 1},
                                 .mesh = {.pipeline = 4},
                                 .microbatches = 16},
                   .step_ns = 1'234'567'890,
                   .tokens_per_second = 99.4,
                   .mfu = 0.0405,
                   .bubble = 0.2,
                   .worst = {.weights = 2 * kOneGib,
                             .gradients = kOneGib,
                             .optimizer = 4 * kOneGib,
                             .activations = kOneGib,
                             .communication = kOneGib / 4,
                             .reserve = kOneGib / 2},
                   .spare_bytes = 5 * kOneGib / 16};
    Plan plan{.options = small_plan(), .rows = {first, second}};
    plan.options.memory_gib = 10;
    plan.options.device.reserve_gib = {.value = 0.5, .basis = Basis::measured};
    return plan;
}

constexpr const char* kKnownTimes =
    "   schedule      vocab mode   v  step ms  tokens/s  MFU %  bubble  spare\n"
    "1  1f1b          one_barrier  1    123.5      1235  45.67    1.23    1.5\n"
    "2  v-search k=6  none         2   1234.6        99   4.05   20.00   *0.3\n";
constexpr const char* kKnownMemory =
    "\n"
    "Bubble in %. In GiB: spare above, and the memory of the rank that needs most;\n"
    "total includes 0.50 reserve (measured). Layers by stage:\n"
    "   rank  weights  grads  optim  activ  vocab  comm  total  layers\n"
    "1     1     1.00   0.50   3.00   0.25   1.00  0.00   6.25  4x2\n"
    "2     0     2.00   1.00   4.00   1.00   0.00  0.25   8.75  8x1\n"
    "\n"
    "2 of 2 rows that fit shown.\n"
    "* Less than 5 % of the memory to spare: such a run may run out of memory.\n";

TEST(PlanRows, HaveTimesAndThenMemory) {
    EXPECT_EQ(rows_text(two_known_rows(), 5), std::string(kKnownTimes) + kKnownMemory);
}

TEST(PlanRows, HaveTheirMeshInPlaceOfTokensPerSecond) {
    Plan plan = two_known_rows();
    plan.rows[0].candidate.mesh = {.pipeline = 2, .tensor = 2};
    plan.rows[1].candidate.micro_batch_size = 2;
    plan.rows[1].candidate.microbatches = 8;
    const std::string times =
        "   schedule      vocab mode   v  p  t  d  b   m  step ms  MFU %  bubble  spare\n"
        "1  1f1b          one_barrier  1  2  2  1  1  16    123.5  45.67    1.23    1.5\n"
        "2  v-search k=6  none         2  4  1  1  2   8   1234.6   4.05   20.00   *0.3\n";
    EXPECT_EQ(rows_text(plan, 5), times + kKnownMemory);
}

TEST(PlanRows, HaveATableOfTheirOwnForMoreColumnsThanALineHas) {
    Plan plan = two_known_rows();
    Candidate& first = plan.rows[0].candidate;
    first.mesh = {.pipeline = 2, .data = 4, .tensor = 2, .expert = 4, .context = 2};
    first.expert_tensor = 2;
    first.recompute = Recompute::full;
    first.zero = {.stage = 3, .reshard_after = ReshardAfter::use, .gather_ahead = 1};
    Candidate& second = plan.rows[1].candidate;
    second.micro_batch_size = 2;
    second.microbatches = 8;
    second.zero = {.stage = 3, .reshard_after = ReshardAfter::step, .gather_ahead = 0};
    const std::string steps =
        "\n"
        "   p  t  C  d  e  x  b   m  recompute  reshard  ahead\n"
        "1  2  2  2  4  2  2  1  16       full      use      1\n"
        "2  4  1  1  1  1  1  2   8       none     step      0\n";
    EXPECT_EQ(rows_text(plan, 5), kKnownTimes + steps + kKnownMemory);
}

TEST(PlanRows, AreThoseThatFitOrElseTheNearest) {
    Plan plan = two_known_rows();
    const auto last_lines = [&](size_t rows) {
        const std::string text = rows_text(plan, rows);
        return text.substr(text.find("\n\n", text.find("Layers by stage:")) + 2);
    };
    EXPECT_EQ(last_lines(1), "1 of 2 rows that fit shown.\n");
    plan.rows[1].spare_bytes = -3 * kOneGib / 2;
    EXPECT_EQ(last_lines(5),
              "1 of 1 row that fits shown. 1 other does not fit; the nearest, v-search k=6 none\n"
              "front v=2, lacks 1.50 GiB.\n");
    plan.rows[0].spare_bytes = -1;
    EXPECT_EQ(last_lines(5), "2 of 2 rows shown, none fits; the nearest come first.\n");
    EXPECT_EQ(last_lines(1), "1 of 2 rows shown, none fits; the nearest come first.\n");
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
