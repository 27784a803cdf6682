// SPDX-License-Identifier: Apache-2.0
// Plans from measured costs: the profiled split comes back, other splits are scaled from it.
#include "src/plan/profiled_model.hpp"
#include "src/plan/step_model.hpp"
#include "tests/plan/plan_cases.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <utility>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

int64_t& at(TableCosts::OpCosts& costs, Op op) {
    return costs[static_cast<size_t>(op)];
}

/// Two ranks of two layers each; B is not quite I + W, as when measured.
Profile measured() {
    Profile profile;
    profile.host = "node";
    profile.device = "cpu";
    profile.model = {.layers = 4,
                     .hidden = 64,
                     .ffn_hidden = 256,
                     .heads = 4,
                     .seq_length = 32,
                     .micro_batch_size = 2,
                     .vocab = 1000,
                     .layers_per_stage = {2, 2}};
    profile.rank_of_stage = {0, 1};
    profile.input = profile.output = ShardMap::even(1000, 2);
    profile.barriers = Barriers::two;
    profile.costs = TableCosts::uniform(2, 2, 20'000, 44'000, 9'000);
    for (TableCosts::OpCosts& stage : profile.costs.stage_ns) at(stage, Op::I) = 23'000;
    for (TableCosts::OpCosts& rank : profile.costs.rank_ns) {
        at(rank, Op::S) = 8'000;
        at(rank, Op::T) = 10'000;
        at(rank, Op::Report) = 500;
        at(rank, Op::Update) = 3'000;
    }
    profile.costs.latency_ns = 700;
    profile.costs.bytes_per_ns = 3;
    profile.costs.local_bytes_per_ns = 10;
    profile.sizes.tokens = 64;
    profile.sizes.hidden = 64;
    profile.sizes.dtype = DType::fp32;
    profile.sizes.report_bytes = 64;
    profile.sizes.stages.assign(2, {.saved = 100});
    profile.sizes.shards.assign(2, {.exp_logits = 64 * 500 * 4});
    profile.persistent = {{.weights = 400'000, .gradients = 400'000, .optimizer = 800'000},
                          {.weights = 400'000, .gradients = 400'000, .optimizer = 800'000}};
    return profile;
}

PlanOptions profiled() {
    PlanOptions options;
    use_profile(options, measured());
    options.gpus = 2;
    options.global_batch_size = 16;
    options.memory_gib = 4;
    return options;
}

StepModel two_barriers(const PlanOptions& options, std::vector<int> layers) {
    const Candidate candidate{.schedule = "1f1b",
                              .vocab_mode = VocabMode::two_barriers,
                              .layers_per_stage = std::move(layers),
                              .mesh = {.pipeline = options.gpus},
                              .micro_batch_size = options.micro_batch_sizes.front(),
                              .recompute = options.recompute.front(),
                              .microbatches = 8};
    return step_model(options, {}, candidate);
}

TEST(UseProfile, TheProfiledSplitHasTheMeasuredCosts) {
    const StepModel step = two_barriers(profiled(), {2, 2});
    const Profile profile = measured();
    for (const Op op : {Op::F, Op::B, Op::I, Op::W}) {
        EXPECT_EQ(step.costs.pass_ns(1, {op, 1, 0}), profile.costs.pass_ns(1, {op, 1, 0}));
    }
    for (const Op op : {Op::S, Op::T, Op::E, Op::G}) {
        EXPECT_NEAR(static_cast<double>(step.costs.pass_ns(1, {op, 0, 0})),
                    static_cast<double>(profile.costs.pass_ns(1, {op, 0, 0})), 2)
            << traits(op).name;
    }
    EXPECT_EQ(step.costs.transfer_ns(Do::send, {{0, 1}, -1}, 3000), 1700);
    EXPECT_EQ(step.costs.local_ns(Do::ordered_sum, 3000), 300);
    EXPECT_EQ(step.sizes.dtype, DType::fp32);
    EXPECT_EQ(step.persistent[0].optimizer, 2 * step.persistent[0].weights);
}

TEST(UseProfile, OtherSplitsAreScaledByLayersAndRows) {
    PlanOptions options = profiled();
    options.gpus = 4;
    const StepModel step = two_barriers(options, {1, 2, 1, 0});
    EXPECT_EQ(step.costs.pass_ns(0, {Op::F, 0, 0}), 10'000);
    EXPECT_EQ(step.costs.pass_ns(1, {Op::F, 1, 0}), 20'000);
    EXPECT_EQ(step.costs.pass_ns(0, {Op::B, 0, 0}), 22'000);
    // A quarter of 36'000 ns for S and T together, of which S has one product of three.
    EXPECT_EQ(step.costs.pass_ns(0, {Op::S, 0, 0}), 3'000);
    EXPECT_EQ(step.costs.pass_ns(0, {Op::T, 0, 0}), 6'000);
}

TEST(UseProfile, ReplicasUpdateTheirPartsOfTheParameters) {
    PlanOptions options = profiled();
    options.gpus = 4;
    options.pipeline = {2};
    options.data = {2};
    const Candidate candidate{.schedule = "1f1b",
                              .vocab_mode = VocabMode::two_barriers,
                              .layers_per_stage = {2, 2},
                              .mesh = {.pipeline = 2, .data = 2},
                              .micro_batch_size = 2,
                              .microbatches = 4};
    const StepModel step = step_model(options, {}, candidate);
    EXPECT_NEAR(static_cast<double>(step.costs.pass_ns(0, {.op = Op::Update})), 1'500, 20);
    EXPECT_NEAR(static_cast<double>(step.costs.pass_ns(0, {.op = Op::Report})), 250, 5);
    EXPECT_EQ(step.sizes.replicas, 2);
    EXPECT_EQ(step.sizes.buckets.size(), 2U);
}

TEST(UseProfile, WhatBelongsToNoActionComesOnTop) {
    PlanOptions options = profiled();
    options.schedules = {"1f1b"};
    options.vocab_modes = {VocabMode::one_barrier};
    for (const Evaluation evaluation : {Evaluation::pass_times, Evaluation::simulation}) {
        options.evaluation = evaluation;
        options.profile->costs.fixed_ns = 0;
        const int64_t without = make_plan(options).rows.front().step_ns;
        options.profile->costs.fixed_ns = 12'345;
        EXPECT_EQ(make_plan(options).rows.front().step_ns, without + 12'345);
    }
}

TEST(UseProfile, OnHostsGradientsTravelByShorterPieces) {
    Profile profile = measured();
    profile.model.layers = 2;
    profile.model.layers_per_stage = {1, 1};
    profile.model.hidden = 1024;  // more weights than activations
    PlanOptions options = profiled();
    use_profile(options, profile);
    options.schedules = {"1f1b"};
    options.pipeline = {1};
    options.data = {2};
    options.vocab_modes = {VocabMode::none};
    options.evaluation = Evaluation::simulation;
    const auto live = [&] {
        const PlannedMemory worst = make_plan(options).rows.at(0).worst;
        return worst.activations + worst.vocabulary + worst.communication;
    };
    const int64_t pieces = live();
    options.profile->costs.communication = CommunicationOrder::streams;
    EXPECT_LT(pieces, live());
}

TEST(UseProfile, RecomputationCostsWhatWasMeasuredOrAllOfTheForward) {
    PlanOptions options = profiled();
    options.recompute = {Recompute::full};
    EXPECT_EQ(two_barriers(options, {2, 2}).costs.pass_ns(1, {Op::R, 1, 0}), 20'000);
    for (auto& stage : options.profile->costs.stage_ns) stage[static_cast<size_t>(Op::R)] = 3'000;
    options.profile->sizes.stages.assign(2, {.saved = 100, .recomputed = 50});
    EXPECT_EQ(two_barriers(options, {2, 2}).costs.pass_ns(1, {Op::R, 1, 0}), 20'000);
    options.recompute = {Recompute::selective};
    EXPECT_EQ(two_barriers(options, {2, 2}).costs.pass_ns(1, {Op::R, 1, 0}), 3'000);
}

// 4 h + 2 f elements of 4 bytes are read and written for each of 64 tokens and two layers.
TEST(UseProfile, SelectiveRecomputationThatWasNotMeasuredTakesItsBytes) {
    PlanOptions options = profiled();
    options.recompute = {Recompute::selective};
    const auto cost = [&](double bytes_per_ns) {
        options.profile->costs.local_bytes_per_ns = bytes_per_ns;
        return two_barriers(options, {2, 2}).costs.pass_ns(1, {Op::R, 1, 0});
    };
    EXPECT_EQ(cost(100), 64 * 2 * 768 * 4 / 100);
    EXPECT_EQ(cost(1), 20'000);  // no more than F
    EXPECT_EQ(cost(0), 20'000);  // not measured either
}

TEST(UseProfile, TheOrderIsThatOfTrainingAndSimulation) {
    const StepModel step = two_barriers(profiled(), {2, 2});
    EXPECT_EQ(step.generate.rule.broadcast_margin, 0);
    const Profile profile = measured();
    const StepPrice price = costs_of(profile, Recompute::none).price(step.placement, {2, 2});
    EXPECT_EQ(step.generate.costs.mean(Op::F), price.order.mean(Op::F));
    EXPECT_EQ(step.generate.costs.hop, price.order.hop);
}

TEST(UseProfile, APlanFromAProfileHasTimesAndMemoryButNoMfu) {
    const Plan plan = make_plan(profiled());
    EXPECT_TRUE(plan.sensitivity.empty());
    const auto json = nlohmann::json::parse(plan_json(plan));
    EXPECT_TRUE(json["device"].is_null());
    EXPECT_EQ(json["profile"]["host"], "node");
    EXPECT_TRUE(json["rows"][0]["mfu"].is_null());
    EXPECT_GT(json["rows"][0]["tokens_per_second"], 0);
    EXPECT_THAT(plan_text(plan, 3), HasSubstr("2 ranks as profiled on node (cpu), 4.00 GiB"));
    EXPECT_THAT(plan_html(plan), HasSubstr("\"host\": \"node\""));
}

TEST(UseProfile, RefusesWhatCannotBeScaledAndAsksForMemory) {
    PlanOptions options = profiled();
    options.memory_gib = 0;
    EXPECT_THROW((void)make_plan(options), UsageError);
    Profile empty = measured();
    empty.model.layers = 0;
    EXPECT_THROW(use_profile(options, empty), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
