// SPDX-License-Identifier: Apache-2.0
// Plans whose replicas share gradients and weights of layers (PlannedTrainer::zero 2 and 3).
#include "src/plan/evaluate.hpp"
#include "src/plan/step_model.hpp"
#include "src/plan/unit_costs.hpp"
#include "tests/plan/plan_cases.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

PlanOptions replicas(int zero) {
    PlanOptions options = small_plan();
    options.pipeline = {1};
    options.data = {4};
    options.vocab_modes = {VocabMode::none};
    options.schedules = {"interleaved"};
    options.chunks = {8};
    options.sensitivity_rows = 0;
    options.trainer.zero = zero;
    return options;
}

const PlanRow& row_of(const Plan& plan, ReshardAfter after) {
    return *std::ranges::find_if(
        plan.rows, [&](const PlanRow& row) { return row.candidate.zero.reshard_after == after; });
}

TEST(PlannedZero, HasARowForEachWayToShareLayers) {
    for (const int zero : {2, 3}) {
        const Plan plan = make_plan(replicas(zero));
        ASSERT_EQ(plan.rows.size(), 2U);
        for (const ReshardAfter after : {ReshardAfter::use, ReshardAfter::step}) {
            const Candidate& candidate = row_of(plan, after).candidate;
            EXPECT_EQ(candidate.zero.stage, zero);
            const std::string name(to_string(after));
            EXPECT_THAT(to_string(candidate), HasSubstr(" reshard=" + name));
            const std::string command = train_command(plan.options, candidate);
            EXPECT_THAT(command, HasSubstr(" --zero-stage " + std::to_string(zero) +
                                           " --reshard-after " + name));
            const std::string ahead =
                " --gather-ahead " + std::to_string(candidate.zero.gather_ahead);
            EXPECT_EQ(command.find(ahead) != std::string::npos, zero == 3);
        }
    }
    EXPECT_THAT(to_string(make_plan(replicas(1)).rows.front().candidate),
                Not(HasSubstr("reshard")));
}

TEST(PlannedZero, HasOneStageMoreForEachLayerAndFamiliesThatTakeThem) {
    PlanOptions options = replicas(3);
    options.schedules.clear();
    options.chunks.clear();
    const Plan plan = make_plan(options);
    const auto any = [&](auto&& is) { return std::ranges::any_of(plan.rows, is); };
    EXPECT_TRUE(any([](const PlanRow& row) {
        return row.candidate.schedule == "looped-bfs" && row.candidate.chunks == 8;
    }));
    EXPECT_FALSE(any([](const PlanRow& row) { return row.candidate.schedule == "v-half"; }));
    // Tensor ranks alone share nothing.
    options.tensor = {4};
    options.data = {1};
    options.schedules = {"1f1b"};
    for (const PlanRow& row : make_plan(options).rows) EXPECT_EQ(row.candidate.zero.stage, 1);
}

/// Layers of 12.6 M parameters: eight of them, of which four replicas keep a quarter each.
TEST(PlannedZero, TakesTheMemoryOfItsOwnPartsAndOfStagesInUse) {
    const Plan one = make_plan(replicas(1)), two = make_plan(replicas(2)),
               three = make_plan(replicas(3));
    constexpr double kLayer = 12.6e6, kLayers = 8 * kLayer;
    const PlannedMemory& whole = one.rows.front().worst;
    const auto expect = [&](int64_t saved, double elements, double width) {
        EXPECT_NEAR(static_cast<double>(saved), elements * width, 0.03 * kLayers * width);
    };
    // The worst moment is that of the output layer, or of a backward with two stages' gradients.
    const PlanRow& use = row_of(three, ReshardAfter::use);
    expect(whole.weights - use.worst.weights, 6 * kLayer - 2 * kLayer, 2);
    const PlanRow& step = row_of(three, ReshardAfter::step);
    EXPECT_GT(step.worst.weights, use.worst.weights);
    EXPECT_GT(whole.gradients, use.worst.gradients);
    EXPECT_EQ(row_of(two, ReshardAfter::use).worst.weights, whole.weights);
    for (const PlanRow* row : {&use, &step, &row_of(two, ReshardAfter::use)}) {
        const Evaluator evaluator(three.options);
        PlanRow timed =
            evaluator.row(row->candidate, evaluator.order(row->candidate), Evaluation::pass_times);
        EXPECT_NEAR(static_cast<double>(timed.worst.total()),
                    static_cast<double>(row->worst.total()),
                    0.15 * static_cast<double>(row->worst.total()));
    }
}

TEST(PlannedZero, HasTwoOfTheLargestStagesWholeAtATimeOrAll) {
    const int64_t norm = 2 * 1024;
    // Four h^2 and 2 h f; biases of 3 h, f, h and h; two norms.
    const int64_t layer = 4 * 1024 * 1024 + 2 * 1024 * 4096 + 3 * 1024 + 4096 + 2 * 1024 + 2 * norm;
    using Bytes = std::pair<int64_t, int64_t>;  // of weights and gradients
    const auto whole = [](int zero, ReshardAfter after, std::vector<int> layers) {
        PlanOptions options = replicas(zero);
        options.model.config.learned_positions = false;
        const Candidate candidate{.schedule = "interleaved",
                                  .chunks = static_cast<int>(layers.size()),
                                  .layers_per_stage = std::move(layers),
                                  .mesh = {.data = 4},
                                  .microbatches = 4,
                                  .zero = {.stage = zero, .reshard_after = after}};
        const Evaluator evaluator(options);
        const PlannedMemory all =
            evaluator.row(candidate, evaluator.order(candidate), Evaluation::pass_times).ranks[0];
        const PlannedMemory own =
            step_model(options, unit_costs(ModelOnDevice(options), candidate), candidate)
                .persistent[0];
        return Bytes(all.weights - own.weights, all.gradients - own.gradients);
    };
    const int64_t all = 8 * layer + norm;  // with the last norm
    EXPECT_EQ(whole(3, ReshardAfter::use, {1, 3, 2, 2}), Bytes(2 * 6 * layer, 4 * 6 * layer));
    EXPECT_EQ(whole(3, ReshardAfter::use, {7, 1}), Bytes(2 * all, 4 * all));
    EXPECT_EQ(whole(3, ReshardAfter::step, {1, 3, 2, 2}), Bytes(2 * all, 4 * all));
    EXPECT_EQ(whole(2, ReshardAfter::use, {1, 3, 2, 2}), Bytes(0, 4 * 6 * layer));
    EXPECT_EQ(whole(2, ReshardAfter::step, {1, 3, 2, 2}), Bytes(0, 4 * all));
}

TEST(PlannedZero, GathersNoStageAheadWhereThereIsNoRoomForIt) {
    PlanOptions options = replicas(3);
    const PlanRow roomy = row_of(make_plan(options), ReshardAfter::use);
    EXPECT_GE(roomy.candidate.zero.gather_ahead, 1);
    options.memory_gib = static_cast<double>(roomy.worst.total() - (1 << 20)) / (1 << 30);
    const PlanRow tight = row_of(make_plan(options), ReshardAfter::use);
    EXPECT_EQ(tight.candidate.zero.gather_ahead, 0);
    EXPECT_LE(roomy.step_ns, tight.step_ns);
}

TEST(PlannedZero, TakesLongerOnSlowerLinks) {
    PlanOptions options = replicas(3);
    const int64_t fast = row_of(make_plan(options), ReshardAfter::use).step_ns;
    options.device.link_gb_per_s.value /= 50;
    const Plan slow = make_plan(options);
    EXPECT_GT(row_of(slow, ReshardAfter::use).step_ns, fast * 3 / 2);
    // Four microbatches gather each stage seven times, or once.
    EXPECT_LT(row_of(slow, ReshardAfter::step).step_ns, row_of(slow, ReshardAfter::use).step_ns);
}

TEST(PlannedZero, IsAmongTheRemedies) {
    PlanOptions options = replicas(1);
    options.memory_gib =
        static_cast<double>(make_plan(options).rows.front().worst.total()) / (1 << 30) - 0.2;
    const Plan plan = make_plan(options);
    ASSERT_FALSE(plan.rows.front().fits());
    const std::vector<Remedy> remedies = find_remedies(plan);
    const auto found = std::ranges::find(remedies, "--zero-stage 3", &Remedy::flags);
    ASSERT_NE(found, remedies.end());
    EXPECT_TRUE(found->row.fits());
}

TEST(PlannedZero, IsRefusedFromAProfile) {
    PlanOptions options = replicas(3);
    options.trainer.zero = 4;
    EXPECT_THROW((void)make_plan(options), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
