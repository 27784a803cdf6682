// SPDX-License-Identifier: Apache-2.0
// What plans say beside their rows: what is tight, what would fit, what vocabulary parallelism
// changes.
#include "tests/plan/plan_cases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr double kGib = 1 << 30;

/// 1F1B only, without other efficiencies.
PlanOptions plain_plan(std::vector<VocabMode> modes) {
    PlanOptions options = small_plan();
    options.schedules = {"1f1b"};
    options.vocab_modes = std::move(modes);
    options.sensitivity_rows = 0;
    return options;
}

/// Lines of a terminal as one line.
std::string flowing(const std::string& text) {
    std::string line;
    for (const char c : text) {
        const char shown = c == '\n' ? ' ' : c;
        if (shown != ' ' || !line.ends_with(' ')) line += shown;
    }
    return line;
}

double needed_gib(const PlanRow& row) {
    return static_cast<double>(row.worst.total()) / kGib;
}

Plan with_remedies(const PlanOptions& options) {
    Plan plan = make_plan(options);
    plan.remedies = find_remedies(plan);
    return plan;
}

std::vector<std::string> flags_of(const Plan& plan) {
    std::vector<std::string> flags;
    for (const Remedy& remedy : plan.remedies) flags.push_back(remedy.flags);
    return flags;
}

TEST(PlanAdvice, MarksRowsWithLittleToSpare) {
    PlanOptions options = plain_plan({VocabMode::one_barrier});
    const PlanRow roomy = make_plan(options).rows.front();
    EXPECT_FALSE(is_tight(options, roomy));
    options.memory_gib = needed_gib(roomy) * 1.06;  // 5.7 % to spare
    EXPECT_THAT(plan_text(make_plan(options), 5), Not(HasSubstr("*")));
    options.memory_gib = needed_gib(roomy) * 1.05;  // 4.8 %
    const Plan tight = make_plan(options);
    EXPECT_TRUE(is_tight(options, tight.rows.front()));
    const std::string text = plan_text(tight, 5);
    EXPECT_THAT(text, ::testing::ContainsRegex(" \\*[0-9]+\\.[0-9]\n"));
    EXPECT_THAT(text, HasSubstr("* Less than 5 % of the memory to spare"));
    EXPECT_EQ(json::parse(plan_json(tight))["rows"][0]["tight"], true);
}

TEST(PlanAdvice, ShowsOnlyRowsThatFitAndCountsTheOthers) {
    PlanOptions options = plain_plan({VocabMode::none, VocabMode::one_barrier});
    const Plan all = make_plan(options);
    ASSERT_EQ(all.rows.size(), 2U);
    const double one = needed_gib(all.rows[0]), other = needed_gib(all.rows[1]);
    options.memory_gib = (one + other) / 2;
    const Plan plan = make_plan(options);
    const std::string text = flowing(plan_text(plan, 5));
    EXPECT_THAT(text, HasSubstr("1 of 1 row that fits shown. 1 other does not fit; the nearest, " +
                                to_string(plan.rows[1].candidate) + ", lacks "));
    EXPECT_THAT(text, Not(HasSubstr("Nothing fits")));
    EXPECT_THAT(text, Not(HasSubstr(" 2 1f1b")));
}

TEST(PlanAdvice, BeginsWithWhatWouldFitWhereNothingDoes) {
    PlanOptions options = plain_plan({VocabMode::one_barrier});
    options.micro_batch_sizes = {4};
    options.global_batch_size = 64;
    const double all = needed_gib(make_plan(options).rows.front());
    options.recompute = {Recompute::selective};
    options.memory_gib = all * 0.45;
    const Plan plan = with_remedies(options);
    ASSERT_FALSE(plan.rows.front().fits());
    EXPECT_THAT(flags_of(plan),
                ElementsAre("--recompute-granularity full", "--micro-batch-size 1",
                            "--tensor-model-parallel-size 2", "--tensor-model-parallel-size 4",
                            "--context-parallel-size 2", "--gpus 8",
                            "--recompute-granularity full --micro-batch-size 1 --gpus 8"));
    for (const Remedy& remedy : plan.remedies) {
        SCOPED_TRACE(remedy.flags);
        EXPECT_GT(remedy.row.spare_bytes, plan.rows.front().spare_bytes);
    }
    // Each is the plan of a command with that flag.
    PlanOptions smaller = options;
    smaller.micro_batch_sizes = {1};
    EXPECT_EQ(plan.remedies[1].row.worst.total(), make_plan(smaller).rows.front().worst.total());
    EXPECT_EQ(plan.remedies.back().row.candidate.mesh.pipeline, 8);

    const std::string text = flowing(plan_text(plan, 5));
    EXPECT_THAT(text, StartsWith("Nothing fits into "));
    EXPECT_THAT(text,
                HasSubstr("The nearest row, 1f1b one_barrier front v=1 b=4 selective, needs"));
    EXPECT_THAT(text, HasSubstr("1 of 1 row shown, none fits; the nearest come first."));
    EXPECT_THAT(text, Not(HasSubstr("mpirun")));
    EXPECT_THAT(plan_text(plan, 5, 0), HasSubstr("To train row 1, which does not fit:"));
    const json read = json::parse(plan_json(plan));
    ASSERT_EQ(read["remedies"].size(), plan.remedies.size());
    EXPECT_EQ(read["remedies"][1]["flags"], "--micro-batch-size 1");
    EXPECT_EQ(read["remedies"][1]["spare_bytes"], plan.remedies[1].row.spare_bytes);
    EXPECT_EQ(read["remedies"][5]["pipeline"], 8);
}

TEST(PlanAdvice, DoublesAPipelineNoFurtherThanItMust) {
    PlanOptions options = plain_plan({VocabMode::one_barrier});
    options.model.config.num_layers = 32;
    options.gpus = 2;
    const double two = needed_gib(make_plan(options).rows.front());
    options.gpus = 8;
    options.memory_gib = needed_gib(make_plan(options).rows.front()) * 1.02;
    options.gpus = 2;
    ASSERT_LT(options.memory_gib, two);
    const Plan plan = with_remedies(options);
    const auto longer = std::ranges::find_if(
        plan.remedies, [](const Remedy& remedy) { return remedy.flags.starts_with("--gpus "); });
    ASSERT_NE(longer, plan.remedies.end());
    EXPECT_EQ(longer->flags, "--gpus 8");
    EXPECT_TRUE(longer->row.fits());
}

TEST(PlanAdvice, TriesChangesTogetherWhereNoneSuffices) {
    PlanOptions options = plain_plan({VocabMode::one_barrier});
    options.memory_gib = 0.45;
    const Plan plan = with_remedies(options);
    ASSERT_FALSE(plan.remedies.empty());
    for (size_t i = 0; i + 1 < plan.remedies.size(); ++i) {
        EXPECT_FALSE(plan.remedies[i].row.fits()) << plan.remedies[i].flags;
    }
    EXPECT_THAT(plan.remedies.back().flags, StartsWith("--recompute-granularity full --gpus "));
}

/// A model on 16 GPUs.
PlanOptions plan_of(const char* model, int64_t seq_length, int data) {
    PlanOptions options = plain_plan({VocabMode::one_barrier});
    options.model = load_model(model);
    options.gpus = 16;
    options.seq_length = seq_length;
    options.data = {data};
    return options;
}

/// The row of the remedy with these flags; the plan's first row, with a failure, if there is none.
PlanRow row_with(const std::string& flags, const Plan& plan) {
    for (const Remedy& remedy : plan.remedies) {
        if (remedy.flags == flags) return remedy.row;
    }
    ADD_FAILURE() << "no remedy is " << flags;
    return plan.rows.front();
}

TEST(PlanAdvice, TriesMoreRanksForExperts) {
    const Plan plan = with_remedies(plan_of("mixtral-8x7b", 512, 4));
    const PlanRow row = row_with("--expert-model-parallel-size 2", plan);
    EXPECT_TRUE(row.fits());
    EXPECT_EQ(row.candidate.mesh.expert, 2);
    EXPECT_EQ(row.candidate.mesh.data, 4);
}

TEST(PlanAdvice, TriesMoreRanksForEachExpert) {
    PlanOptions options = plan_of("mixtral-8x7b", 512, 16);
    options.expert = {8};
    const PlanRow row = row_with("--expert-tensor-parallel-size 2", with_remedies(options));
    EXPECT_EQ(row.candidate.mesh.expert, 16);
    EXPECT_EQ(row.candidate.expert_groups(), 8);
}

TEST(PlanAdvice, TriesMoreRanksForLongSequences) {
    const Plan plan = with_remedies(plan_of("llama-3-8b", 65536, 4));
    const PlanRow row = row_with("--context-parallel-size 2", plan);
    EXPECT_EQ(row.candidate.mesh.context, 2);
    EXPECT_EQ(row.candidate.mesh.data, 2);
    EXPECT_GT(row.spare_bytes, plan.rows.front().spare_bytes);
}

// Times of passes say nothing of ranks that share layers, or of other pipelines.
TEST(PlanAdvice, ChangesNoRanksOfMeasuredPasses) {
    using enum Op;
    PlanOptions options = plain_plan({VocabMode::none});
    options.gpus = 2;
    options.memory_gib = 0.45;
    options.micro_batch_sizes = {4};
    PlannedPassTimes times{.name = "t.csv", .rank_of_stage = {0, 1}};
    TableCosts::OpCosts passes;
    passes.fill(1'000'000);
    times.stage_ns = times.rank_ns = {passes, passes};
    for (const Op op : {S, T}) times.rank_ns[0][static_cast<size_t>(op)] = 0;
    for (const Op op : {E, G}) times.rank_ns[1][static_cast<size_t>(op)] = 0;
    options.pass_times = times;
    const Plan plan = with_remedies(options);
    ASSERT_EQ(plan.rows.size(), 1U);
    EXPECT_THAT(flags_of(plan),
                ElementsAre("--recompute-granularity selective", "--recompute-granularity full",
                            "--micro-batch-size 1"));
}

TEST(PlanAdvice, LooksForNothingMoreOnceItIsStopped) {
    PlanOptions options = plain_plan({VocabMode::one_barrier});
    options.memory_gib = 0.45;
    Plan plan = make_plan(options);
    ASSERT_FALSE(plan.rows.front().fits());
    plan.options.stop = [] { return true; };
    EXPECT_TRUE(find_remedies(plan).empty());
}

TEST(PlanAdvice, HasNoRemediesWhereARowFits) {
    EXPECT_TRUE(find_remedies(make_plan(plain_plan({VocabMode::none}))).empty());
}

TEST(PlanAdvice, SaysWhatVocabularyParallelismChanges) {
    PlanOptions options = plain_plan({VocabMode::none, VocabMode::one_barrier});
    Plan plan = make_plan(options);
    ASSERT_EQ(plan.rows[0].candidate.vocab_mode, VocabMode::one_barrier);
    plan.rows[0].step_ns = 80'000'000;
    plan.rows[1].step_ns = 100'000'000;
    const std::optional<VocabularyGain> gain = vocabulary_gain(plan);
    ASSERT_TRUE(gain);
    EXPECT_EQ(gain->with, 0U);
    EXPECT_EQ(gain->without, 1U);
    EXPECT_DOUBLE_EQ(gain->step_ratio, 0.8);
    EXPECT_DOUBLE_EQ(gain->memory_ratio, needed_gib(plan.rows[0]) / needed_gib(plan.rows[1]));
    EXPECT_THAT(flowing(plan_text(plan, 2)),
                HasSubstr("Vocabulary parallelism pays: its best, row 1 (1f1b one_barrier front "
                          "v=1), takes 20.0 % less time and "));
    EXPECT_DOUBLE_EQ(json::parse(plan_json(plan))["vocabulary"]["step_ratio"].get<double>(), 0.8);

    std::swap(plan.rows[0], plan.rows[1]);
    plan.rows[0].step_ns = 50'000'000;
    EXPECT_THAT(flowing(plan_text(plan, 2)),
                HasSubstr("Vocabulary parallelism does not pay here: its best, row 2 (1f1b "
                          "one_barrier front v=1), takes 60.0 % more time and "));
}

TEST(PlanAdvice, SaysWhereOnlyVocabularyParallelismFits) {
    PlanOptions options = plain_plan({VocabMode::none, VocabMode::one_barrier});
    Plan plan = make_plan(options);
    ASSERT_EQ(plan.rows[1].candidate.vocab_mode, VocabMode::none);
    plan.rows[1].spare_bytes = -(int64_t{3} << 29);
    EXPECT_THAT(flowing(plan_text(plan, 2)),
                HasSubstr("Vocabulary parallelism makes it fit: without it nothing does. The "
                          "nearest, row 2 (1f1b none front v=1), lacks 1.50 GiB."));
}

TEST(PlanAdvice, SaysNothingOfVocabularyParallelismWithoutBothKinds) {
    const Plan plan = make_plan(plain_plan({VocabMode::one_barrier, VocabMode::interlaced}));
    EXPECT_FALSE(vocabulary_gain(plan));
    EXPECT_THAT(plan_text(plan, 2), Not(HasSubstr("Vocabulary parallelism")));
    EXPECT_TRUE(json::parse(plan_json(plan))["vocabulary"].is_null());
}

TEST(PlanAdvice, BreaksNoQuotedWordOfACommand) {
    PlanOptions options = plain_plan({VocabMode::one_barrier});
    options.model.source = "it's a --long folder/" + std::string(60, 'x') + " --here/config.json";
    const Plan plan = make_plan(options);
    const std::string text = plan_text(plan, 1);
    std::string joined = text.substr(text.find("    mpirun"));
    joined = joined.substr(4, joined.find("\n\n") - 4);
    for (size_t at; (at = joined.find(" \\\n        ")) != std::string::npos;) {
        joined.replace(at, 11, " ");
    }
    EXPECT_EQ(joined, train_command(options, plan.rows[0].candidate));
    EXPECT_THAT(joined, HasSubstr("--model 'it'\\''s a --long folder/xxx"));
}

TEST(PlanAdvice, ShowsTheCommandOfTheRowThatIsAsked) {
    const Plan plan = make_plan(plain_plan({VocabMode::none, VocabMode::one_barrier}));
    const std::string first = flowing(plan_text(plan, 1));
    EXPECT_THAT(first, HasSubstr("To train row 1: mpirun -np 4 train_gpt --model small "));
    EXPECT_THAT(first, HasSubstr("--vocab-mode one_barrier"));
    EXPECT_THAT(flowing(plan_text(plan, 1, 1)), HasSubstr("--vocab-mode none"));
    EXPECT_EQ(json::parse(plan_json(plan))["rows"][1]["command"],
              train_command(plan.options, plan.rows[1].candidate));
}

}  // namespace
}  // namespace vocabpipe::testing
