// SPDX-License-Identifier: Apache-2.0
// Predictions beside published runs: the figures of docs/planning-accuracy.md, which
// bench_plan_published prints.
#include "benchmarks/prediction_errors.hpp"
#include "benchmarks/published_runs.hpp"
#include "benchmarks/published_steps.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// Errors that were reached, rounded up, of all rows of a group. Where the table of
/// docs/planning-accuracy.md improves, these follow.
struct Bound {
    int rows = 0;
    double least = 0, most = 0;  ///< median of predicted / measured
    double error = 0;            ///< median of |predicted / measured - 1|
    double regret = 0;
    double recall = 1, precision = 1;
};

std::map<std::string, std::vector<Prediction>> predictions(const std::string& path) {
    std::map<std::string, std::vector<Prediction>> groups;
    for (const PublishedRun& run : read_published_runs(path).runs) {
        groups[run.group].push_back(compare(run, predict(run)));
    }
    return groups;
}

void expect_within(const std::map<std::string, std::vector<Prediction>>& groups,
                   const std::map<std::string, Bound>& bounds) {
    for (const auto& [group, bound] : bounds) {
        SCOPED_TRACE(group);
        const auto found = groups.find(group);
        ASSERT_NE(found, groups.end());
        const PredictionErrors errors = errors_of(found->second);
        EXPECT_EQ(errors.rows, bound.rows);
        EXPECT_GE(errors.median, bound.least);
        EXPECT_LE(errors.median, bound.most);
        EXPECT_LE(errors.error, bound.error);
        EXPECT_LE(errors.regret, bound.regret);
        EXPECT_GE(errors.recall(), bound.recall);
        EXPECT_GE(errors.precision(), bound.precision);
    }
}

TEST(PublishedRuns, OfManyTrainersArePredictedFromSizesAlone) {
    const auto groups = predictions(VOCABPIPE_PUBLISHED_TRUTH);
    EXPECT_EQ(groups.size(), 17U);
    // FSDP; nothing was fitted to these rows.
    expect_within(groups,
                  {{"A100 mosaicml/llm-foundry bf16",
                    {.rows = 14, .least = 0.97, .most = 1.03, .error = 0.055, .precision = 0}},
                   {"H100 mosaicml/llm-foundry bf16",
                    {.rows = 17, .least = 0.92, .most = 1, .error = 0.065, .precision = 0}}});
    expect_within(
        groups,
        {{"A100 Hagemann flash_attention2 + RMS kernel",
          {.rows = 32, .least = 0.98, .most = 1.04, .error = 0.045, .recall = 0.95}},
         {"A100 Hagemann flash_attention2 + RMS kernel sp",
          {.rows = 19, .least = 0.98, .most = 1.04, .error = 0.045, .recall = 0.88}},
         {"A100 Korthikanti fp16", {.rows = 8, .least = 0.98, .most = 1.02, .error = 0.025}},
         {"A100 vTrain fp16",
          {.rows = 561, .least = 0.96, .most = 1.02, .error = 0.075, .regret = 0.06}},
         // The plan of 405B on 576 GPUs needs 0.1 GiB more than there is.
         {"H100 NVIDIA/dgxc-benchmarking bf16",
          {.rows = 16, .least = 0.97, .most = 1.03, .error = 0.03, .precision = 0}},
         {"H100 NVIDIA/dgxc-benchmarking FP8",
          {.rows = 16, .least = 0.97, .most = 1.03, .error = 0.03, .precision = 0}}});
}

TEST(PublishedRuns, OfTheVocabularyPaperArePredictedFromSizesAlone) {
    const std::string paper = "A100 vocabulary paper, ";
    const auto groups = predictions(VOCABPIPE_PUBLISHED_STEPS);
    EXPECT_EQ(groups.size(), 4U);
    expect_within(
        groups,
        {{paper + "1f1b sharded", {.rows = 48, .least = 0.98, .most = 1.01, .error = 0.025}},
         {paper + "1f1b whole", {.rows = 32, .least = 0.98, .most = 1.01, .error = 0.02}},
         {paper + "v-half sharded", {.rows = 12, .least = 1, .most = 1.045, .error = 0.04}},
         {paper + "v-half whole", {.rows = 11, .least = 1, .most = 1.05, .error = 0.05}}});
    for (const auto& [group, rows] : groups) {
        for (const Prediction& row : rows) {
            if (row.measured == 0) continue;
            EXPECT_NEAR(row.predicted_gib, row.measured_gib, 0.085 * row.measured_gib);
            // One run's layers are split in a way that is not published
            // (docs/planning-accuracy.md).
            if (row.predicted / row.measured < 0.9) continue;
            EXPECT_NEAR(row.predicted, row.measured, 0.075 * row.measured) << group << row.cell;
        }
    }
}

// What the two code bases of the published runs do differently, and it matters on a V: with every
// receive posted one pass ahead the sharded V-Half comes out too slow.
TEST(PublishedRuns, OfVHalfPostTheirReceivesEarly) {
    const DeviceSpec a100 = load_device("a100");
    for (const PublishedStep& row : read_published_steps(VOCABPIPE_PUBLISHED_STEPS)) {
        if (row.schedule != "v-half" || !sharded(row.mode) || row.gpus != 24) continue;
        PlanOptions options = row.plan(a100);
        EXPECT_EQ(options.receive_ahead, 0);
        const double early = row.time_ratio(make_plan(options).rows.front());
        options.receive_ahead = 1;
        const double late = row.time_ratio(make_plan(options).rows.front());
        EXPECT_GT(late, early + 0.02) << row.vocab;
    }
}

}  // namespace
}  // namespace vocabpipe::testing
