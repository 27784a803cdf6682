// SPDX-License-Identifier: Apache-2.0
#include "src/step/costs/length_sizes.hpp"
#include "vocabpipe/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace vocabpipe::testing {
namespace {

PlanOptions options_of(std::vector<LengthCount> documents, Evaluation evaluation) {
    PlanOptions options;
    options.model = load_model("llama-3-8b");
    options.device = load_device("h100");
    options.gpus = 8;
    options.seq_length = 8192;
    options.global_batch_size = 16;
    options.schedules = {"1f1b", "zb-v"};
    options.vocab_modes = {VocabMode::one_barrier};
    options.evaluation = evaluation;
    options.sensitivity_rows = 0;
    options.documents = std::move(documents);
    return options;
}

/// Figures of the best row.
LengthPlan planned(std::vector<LengthCount> documents,
                   Evaluation evaluation = Evaluation::pass_times) {
    return make_plan(options_of(std::move(documents), evaluation)).lengths.front();
}

int64_t microbatches(const LengthPlan& plan) {
    return std::accumulate(
        plan.microbatches.begin(), plan.microbatches.end(), int64_t{0},
        [](int64_t sum, const LengthCount& of_length) { return sum + of_length.count; });
}

TEST(PlanLengths, AreThoseOfTheRowWhereAllDocumentsFillASequence) {
    const Plan plan = make_plan(options_of({{8192, 10}}, Evaluation::simulation));
    ASSERT_EQ(plan.lengths.size(), std::min(plan.rows.size(), kLengthRows));
    for (size_t row = 0; row < plan.lengths.size(); ++row) {
        const LengthPlan& lengths = plan.lengths[row];
        const double expected = plan.rows[row].tokens_per_second;
        EXPECT_NEAR(lengths.padded, expected, 1e-6 * expected);
        EXPECT_NEAR(lengths.packed, expected, 1e-3 * expected);
        EXPECT_NEAR(lengths.by_length, expected, 1e-3 * expected);
        EXPECT_EQ(lengths.lengths, std::vector<int64_t>{8192});
        EXPECT_EQ(microbatches(lengths), plan.rows[row].candidate.microbatches);
    }
}

TEST(PlanLengths, GainWhereDocumentsAreShort) {
    for (const Evaluation evaluation : {Evaluation::pass_times, Evaluation::simulation}) {
        const std::vector<LengthCount> documents{{500, 300}, {1000, 200}, {3000, 60}, {8192, 20}};
        const LengthPlan plan = planned(documents, evaluation);
        EXPECT_GT(plan.by_length, 2 * plan.padded);
        EXPECT_GT(plan.packed, plan.by_length);
        EXPECT_LE(plan.lengths.size(), 4U);
        EXPECT_EQ(plan.lengths.back(), 8192);
        EXPECT_EQ(microbatches(plan), 16);
        // 500 of 580 documents have at most 1000 rows, 20 of them 8192.
        EXPECT_GE(plan.microbatches.front().count, 8);
        EXPECT_GE(plan.microbatches.back().count, 1);
    }
}

TEST(PlanLengths, CutLongerDocuments) {
    const LengthPlan cut = planned({{2 * 8192, 5}});
    const LengthPlan whole = planned({{8192, 10}});
    EXPECT_DOUBLE_EQ(cut.padded, whole.padded);
    EXPECT_DOUBLE_EQ(cut.by_length, whole.by_length);
}

TEST(LengthSizes, AreTheShareOfTheTokens) {
    StepSizes sizes{.tokens = 2 * 8192, .hidden = 4};
    sizes.stages = {{.saved = 1000, .weight_gradient_workspace = 7}};
    sizes.shards = {{.exp_logits = 80, .score_workspace = 1}};
    const LengthSizes half = length_sizes(sizes, 4096, 8192);
    EXPECT_EQ(half.tokens, 2 * 4096);
    EXPECT_EQ(half.stages[0].saved, 500);
    EXPECT_EQ(half.stages[0].weight_gradient_workspace, 4);
    EXPECT_EQ(half.shards[0].exp_logits, 40);
    EXPECT_EQ(half.shards[0].score_workspace, 1);
    EXPECT_EQ(length_sizes(sizes, 8192, 8192).tokens, sizes.tokens);
}

TEST(PlanLengths, AreNoneWithoutDocuments) {
    EXPECT_TRUE(make_plan(options_of({}, Evaluation::pass_times)).lengths.empty());
}

}  // namespace
}  // namespace vocabpipe::testing
