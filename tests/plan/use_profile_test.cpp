// SPDX-License-Identifier: Apache-2.0
// Plans from measured costs: the profiled split comes back, other splits are scaled from it.
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
    return step_model(options, unit_costs(options, candidate), candidate);
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
    EXPECT_NEAR(static_cast<double>(step.costs.pass_ns(0, {Op::T, 0, 0})), 5'000, 2);
}

// Both ranks' Report and Update over 4 bytes of 100'000 gradients and 30 of as many updates each.
TEST(UseProfile, AByteOfAParameterTakesItsShareOfReportAndUpdate) {
    PlanOptions options = profiled();
    const double bytes = 2 * (100'000 * 4 + 100'000 * 30);
    EXPECT_DOUBLE_EQ(unit_costs(options, {}).per_parameter_byte, 2 * 3'500 / bytes);
    options.profile->sizes.dtype = DType::bf16;  // with master weights
    for (PersistentBytes& rank : options.profile->persistent) rank.optimizer = 1'200'000;
    EXPECT_DOUBLE_EQ(unit_costs(options, {}).per_parameter_byte, 2 * 3'500 / bytes);
    options.profile->persistent.clear();
    EXPECT_EQ(unit_costs(options, {}).per_parameter_byte, 0);
}

// Three products and a softmax: score = p + 2/3 s, and both = 3 p + s.
TEST(UseProfile, ProductsAndSoftmaxOfTheOutputLayerFollowFromSAndT) {
    PlanOptions options = profiled();
    const auto costs = [&](Barriers barriers, int64_t score, int64_t weight) {
        options.profile->barriers = barriers;
        for (TableCosts::OpCosts& rank : options.profile->costs.rank_ns) {
            at(rank, Op::S) = score;
            at(rank, Op::T) = weight;
        }
        const UnitCosts units = unit_costs(options, {});
        EXPECT_EQ(units.whole_softmax_per_row, units.softmax_per_row);
        EXPECT_EQ(units.output_gradient.per_row, units.logits.per_row);
        EXPECT_EQ(units.output_weight_gradient.per_row, units.logits.per_row);
        return std::pair(units.logits.per_row, units.softmax_per_row);
    };
    // 500 rows on each of two ranks.
    EXPECT_EQ(costs(Barriers::two, 8'000, 10'000), std::pair(8.0, 12.0));
    EXPECT_EQ(costs(Barriers::two, 3'000, 15'000), std::pair(12.0, 0.0)) << "not less than none";
    EXPECT_EQ(costs(Barriers::two, 18'000, 9'000), std::pair(0.0, 54.0)) << "not more than all";
    EXPECT_EQ(costs(Barriers::one, 12'000, 6'000), std::pair(12.0, 0.0));
}

TEST(UseProfile, EGoesThroughAllTokensOnEveryRankAndGThroughAPart) {
    PlanOptions options = profiled();
    for (TableCosts::OpCosts& rank : options.profile->costs.rank_ns) at(rank, Op::G) = 4'000;
    EXPECT_EQ(unit_costs(options, {}).embedding, 9'000);
    EXPECT_EQ(unit_costs(options, {}).embedding_gradient, 2 * 4'000);
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

TEST(UseProfile, OnHostsReduceGoesThroughTheRowsOfTokens) {
    PlanOptions options = profiled();
    const auto rows = [&] {
        const double byte = unit_costs(options, {}).per_parameter_byte;
        const StepModel step = two_barriers(options, {2, 2});
        return static_cast<double>(step.costs.pass_ns(0, {.op = Op::Reduce})) / (4 * 64 * 4 * byte);
    };
    EXPECT_NEAR(rows(), 8 * 64 / 2, 1) << "8 microbatches of 64 tokens, two ranks";
    options.profile->costs.communication = CommunicationOrder::streams;
    EXPECT_NEAR(rows(), 500, 1);
}

TEST(UseProfile, OnHostsGradientsTravelByShorterPieces) {
    PlanOptions options = profiled();
    options.schedules = {"1f1b"};
    options.pipeline = {1};
    options.data = {2};
    options.vocab_modes = {VocabMode::none};
    options.evaluation = Evaluation::simulation;
    options.model.config.num_layers = 1;
    options.model.config.hidden_size = 1024;  // more weights than activations
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

TEST(UseProfile, ABackwardAndItsRecomputationGiveTheMarginOfC0) {
    PlanOptions options = profiled();
    options.profile->costs.latency_ns = 1'000'000;
    EXPECT_EQ(two_barriers(options, {2, 2}).generate.rule.broadcast_margin, 44'000 / 2);
    options.recompute = {Recompute::full};
    EXPECT_EQ(two_barriers(options, {2, 2}).generate.rule.broadcast_margin, (44'000 + 20'000) / 2);
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
