// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/step_plan.hpp"

#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/flop_costs.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/model_flops.hpp"
#include "vocabpipe/receive_early.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kRanks = 3;
constexpr int kMicrobatches = 5;

/// More layers than stages, so that none is empty.
ModelConfig six_layers() {
    return tiny_gpt(6, {.vocab_size = 53});
}

ScheduleOptions asked(const ModelConfig& model, VocabMode mode) {
    return {.ranks = kRanks,
            .microbatches = kMicrobatches,
            .vocab_mode = mode,
            .vocab_size = model.vocab_size};
}

const StepWork kWork{.microbatches = kMicrobatches, .micro_batch_size = 2};

class StepPlans : public ::testing::TestWithParam<const char*> {};

TEST_P(StepPlans, AreWhatThePartsOneAfterTheOtherMake) {
    const ModelConfig model = six_layers();
    for (const VocabMode mode : {VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
                                 VocabMode::one_barrier, VocabMode::two_barriers}) {
        SCOPED_TRACE(to_string(mode));
        for (const int replicas : {1, 2}) {
            const Schedule schedule = make_schedule(GetParam(), asked(model, mode));
            const ModelPartition partition{
                .layers_per_stage = layers_per_stage(model.num_layers, schedule.rank_of_stage, mode,
                                                     {output_layer_in_layers(model)}),
                .micro_batch_size = 2,
                .replicas = replicas};
            const StepSizes sizes = step_sizes(model, partition, schedule);
            const TableCosts costs = flop_costs(model, partition, schedule);
            const StepPlan plan =
                plan_step(model, {.ranks = kRanks, .replicas = replicas},
                          {.name = GetParam(), .vocab_mode = mode, .receive_ahead = 1}, kWork);
            EXPECT_EQ(plan.schedule.passes, schedule.passes);
            EXPECT_EQ(plan.partition.layers_per_stage, partition.layers_per_stage);
            EXPECT_EQ(plan.mesh(), (Mesh{kRanks, replicas}));
            EXPECT_EQ(plan.microbatches(), kMicrobatches);
            EXPECT_EQ(plan.lowered.hash(), lower(schedule, sizes, costs).front().hash);
            const EarlyReceives early = lower_receiving_early(schedule, sizes, costs);
            const StepPlan by_default = plan_step(model, {.ranks = kRanks, .replicas = replicas},
                                                  {.name = GetParam(), .vocab_mode = mode}, kWork);
            EXPECT_EQ(by_default.lowered.hash(), early.lowered.hash());
            EXPECT_EQ(by_default.lowering.receive_ahead, early.receive_ahead);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(, StepPlans, ::testing::Values("1f1b", "interleaved", "zb-h1", "v-half"),
                         [](const auto& info) {
                             std::string name = info.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

TEST(StepPlan, HostsExchangeGradientsInShorterPiecesThanDevicesWithStreams) {
    const ModelConfig model = tiny_gpt(1, {.vocab_size = 100'000});  // buckets of several pieces
    const auto sums = [&](CommunicationOrder communication) {
        const StepPlan plan =
            plan_step(model, {.replicas = 2, .communication = communication}, {}, {});
        return std::ranges::count(plan.lowered.pipeline[0].actions, Do::ordered_sum, &Action::what);
    };
    const auto on_devices = sums(CommunicationOrder::streams);
    const auto on_hosts = sums(CommunicationOrder::lanes);
    EXPECT_GT(on_hosts, 2 * on_devices);
}

TEST(StepPlan, IsMadeForMeasuredCosts) {
    const ModelConfig model = six_layers();
    const Schedule schedule = make_schedule("zb-h1", asked(model, VocabMode::one_barrier));
    TableCosts measured = TableCosts::uniform(kRanks, kRanks, 100, 700, 90);
    measured.latency_ns = 30;
    const StepPlan plan = plan_step(
        model, {.ranks = kRanks, .communication = CommunicationOrder::streams, .costs = measured},
        {.name = "zb-h1"}, kWork);
    measured.communication = CommunicationOrder::streams;
    ScheduleOptions options = asked(model, VocabMode::one_barrier);
    options.costs = PassCosts::of(measured, plan.sizes, schedule);
    EXPECT_EQ(plan.schedule.passes, make_schedule("zb-h1", options).passes);
    EXPECT_EQ(plan.order_costs.hop, options.costs.hop);
    EXPECT_EQ(plan.costs.stage_ns, measured.stage_ns);
    EXPECT_EQ(plan.costs.communication, CommunicationOrder::streams);
}

TEST(StepPlan, ChoosesPiecesByWhatWasMeasured) {
    ModelConfig model = six_layers();
    model.seq_length = model.max_position_embeddings = 256;  // rows for several pieces
    const StepSchedule automatic{.vocab_mode = VocabMode::none, .pieces = 0};
    const auto plan = [&](const StepCluster& cluster) {
        return plan_step(model, cluster, automatic, kWork);
    };
    const StepPlan unmeasured = plan({.ranks = kRanks});
    EXPECT_EQ(unmeasured.lowering.pieces, 1) << "of whole messages nothing is known";

    TableCosts costs = TableCosts::uniform(kRanks, kRanks, 100'000, 200'000, 0);
    const int64_t boundary = unmeasured.sizes.tokens * model.hidden_size * 4;
    costs.bytes_per_ns = static_cast<double>(boundary) / 30'000;
    const StepPlan slow = plan({.ranks = kRanks, .costs = costs});
    EXPECT_GT(slow.lowering.pieces, 1);
    EXPECT_FALSE(slow.lowered.pipeline[0].streamed.empty());
    OverlapTable table;
    table.rates.piece_ns = 20'000;
    EXPECT_EQ(plan({.ranks = kRanks, .costs = costs, .overlap = table}).lowering.pieces, 1)
        << "too dear";
    costs.bytes_per_ns = static_cast<double>(boundary) / 100;
    EXPECT_EQ(plan({.ranks = kRanks, .costs = costs}).lowering.pieces, 1) << "nothing to hide";

    // A table alone: passes from FLOPs at its rate, messages on its link.
    table.rates = {.flops_per_ns = 200, .link = {.bytes_per_ns = 1e3}};
    EXPECT_EQ(plan({.ranks = kRanks, .overlap = table}).lowering.pieces, 1);
    EXPECT_EQ(plan({.ranks = kRanks, .overlap = table}).lowered.hash(), unmeasured.lowered.hash());
    const auto forward =
        static_cast<double>(unmeasured.costs.stage_ns[0][static_cast<size_t>(Op::F)]);
    table.rates.link.bytes_per_ns = static_cast<double>(boundary) / (0.3 * forward);
    EXPECT_GT(plan({.ranks = kRanks, .overlap = table}).lowering.pieces, 1);
}

TEST(StepPlan, ChoosesPiecesOfTensorRanksByTheTable) {
    const ModelConfig model = six_layers();
    const StepSchedule automatic{.vocab_mode = VocabMode::none, .pieces = 0};
    const int64_t rows = kWork.micro_batch_size * model.seq_length;
    OverlapTable table{.members = 2, .element_bytes = 4};
    table.shapes = {{.op = OverlapOp::all_gather_gemm,
                     .rows = rows,
                     .inner = model.hidden_size,
                     .columns = model.mlp_columns() / 2,
                     .pieces = 8}};
    const auto plan = [&](const StepCluster& cluster, const StepSchedule& schedule) {
        return plan_step(model, cluster, schedule, kWork).partition.tensor_pieces;
    };
    EXPECT_EQ(plan({.ranks = 1, .tensor = 2, .overlap = table}, automatic), 8);
    EXPECT_EQ(plan({.ranks = 1, .tensor = 2, .overlap = table}, {.pieces = 4}), 4);
    EXPECT_EQ(plan({.ranks = 1, .tensor = 2}, automatic), 1);
}

TEST(StepPlan, ChoosesPiecesOfExpertRanksByTheTable) {
    ModelConfig model = six_layers();
    set_family(model, "mixtral");
    model.moe = {.experts = 4, .top_k = 2};
    model.tied = false;
    const StepSchedule automatic{.vocab_mode = VocabMode::none, .pieces = 0};
    const int64_t rows = 2 * kWork.micro_batch_size * model.seq_length;
    const int64_t gates = 2 * model.ffn_hidden_size;
    OverlapTable table{.members = 2, .element_bytes = 4};
    table.shapes = {{.op = OverlapOp::dispatch_gemm,
                     .rows = rows,
                     .inner = model.hidden_size,
                     .columns = gates,
                     .pieces = 2},
                    {.op = OverlapOp::gemm_combine,
                     .rows = rows,
                     .inner = gates,
                     .columns = model.hidden_size,
                     .pieces = 8}};
    const auto expect = [&](const StepCluster& cluster, const StepSchedule& schedule, int dispatch,
                            int combine) {
        const ExpertPieces by = plan_step(model, cluster, schedule, kWork).partition.expert_pieces;
        EXPECT_EQ(by.dispatch, dispatch);
        EXPECT_EQ(by.combine, combine);
    };
    const StepCluster cluster{.ranks = 1, .replicas = 2, .expert = 2, .overlap = table};
    expect(cluster, automatic, 2, 8);
    expect(cluster, {.pieces = 3}, 3, 3);
    // A choice is a row on both ranks of its expert, which have half of its columns.
    for (size_t i : {0, 1}) {
        MeasuredOverlap of_parts = table.shapes[i];
        of_parts.rows *= 2;
        (i == 0 ? of_parts.columns : of_parts.inner) /= 2;
        of_parts.pieces = 5 + static_cast<int>(i);
        table.shapes.push_back(of_parts);
    }
    expect({.ranks = 1, .replicas = 2, .expert = 2, .expert_tensor = 2, .overlap = table},
           automatic, 5, 6);
    expect({.ranks = 1, .replicas = 2, .expert = 2}, automatic, ExpertPieces().dispatch,
           ExpertPieces().combine);
}

TEST(StepPlan, LetsContextRanksExchangeInTheFormAndPanelsOfItsSchedule) {
    ModelConfig model = six_layers();
    model.seq_length = model.max_position_embeddings = 8;
    model.num_attention_heads = 4;
    const auto plan = [&](const StepSchedule& schedule) {
        return plan_step(model, {.ranks = 1, .context = 2}, schedule, kWork);
    };
    const auto exchange = [&](const StepSchedule& schedule) {
        return plan(schedule).partition.context_exchange;
    };
    EXPECT_EQ(exchange({.pieces = 0}), ContextExchange());
    EXPECT_EQ(exchange({.pieces = 3}), ContextExchange({.panels = 3}));
    EXPECT_EQ(exchange({.pieces = 2, .context_form = ContextForm::a2a}),
              (ContextExchange{.form = ContextForm::a2a, .panels = 2}));
    // One panel of all four heads has the keys of all tokens in order, and gradients.
    const auto workspace = [&](const StepSchedule& schedule) {
        return plan(schedule).sizes.stages.front().input_gradient_workspace;
    };
    EXPECT_GT(workspace({.pieces = 1}), workspace({.pieces = 4}));
    EXPECT_NE(workspace({.pieces = 2}), workspace({.pieces = 2, .context_form = ContextForm::a2a}));
    EXPECT_EQ(plan({}).sizes.tokens, kWork.micro_batch_size * 4);
    EXPECT_EQ(plan({}).mesh(), (Mesh{.context = 2}));
}

TEST(StepPlan, GivesContextRanksTheRotaryPositionsOfTheirTokens) {
    ModelConfig model = six_layers();
    set_family(model, "llama");
    model.seq_length = 8;
    const auto weights = [&](const StepCluster& cluster) {
        const StepPlan plan = plan_step(model, cluster, {}, kWork);
        return persistent_bytes(model, plan.partition, plan.schedule, 0).weights;
    };
    const int64_t row = model.rotary_size() * size_of(DType::fp32);
    EXPECT_EQ(weights({.ranks = 1, .replicas = 2}) - weights({.ranks = 1, .context = 2}), 4 * row);
}

// --- several lengths -----------------------------------------------------------------------------

ModelConfig twelve_tokens() {
    ModelConfig model = six_layers();
    model.seq_length = model.max_position_embeddings = 12;
    return model;
}

StepWork work_of(std::vector<int64_t> shorter, std::vector<int64_t> lengths) {
    StepWork work = kWork;
    work.shorter_lengths = std::move(shorter);
    work.seq_lengths = std::move(lengths);
    return work;
}

TEST(StepPlan, GivesEveryMicrobatchTheSizesOfItsLength) {
    const ModelConfig model = twelve_tokens();
    const std::vector<int64_t> lengths{12, 4, 6, 6, 12};
    const StepPlan plan = plan_step(model, {.ranks = kRanks}, {}, work_of({6, 4}, lengths));
    EXPECT_EQ(plan.sizes.length_of_microbatch, (std::vector{0, 2, 1, 1, 0}));
    EXPECT_EQ(plan.lowered.pipeline[1].tokens, (std::vector<int64_t>{24, 8, 12, 12, 24}));
    for (size_t k = 0; k < 2; ++k) {
        ModelConfig alone = model;
        alone.seq_length = plan.partition.shorter_lengths[k];
        const StepSizes of_length = plan_step(alone, {.ranks = kRanks}, {}, kWork).sizes;
        EXPECT_EQ(plan.sizes.shorter[k].tokens, of_length.tokens);
        for (size_t s = 0; s < of_length.stages.size(); ++s) {
            EXPECT_EQ(plan.sizes.shorter[k].stages[s].saved, of_length.stages[s].saved);
            EXPECT_EQ(plan.sizes.shorter[k].stages[s].backward_workspace,
                      of_length.stages[s].backward_workspace);
            EXPECT_EQ(plan.sizes.shorter[k].shards[s].exp_logits, of_length.shards[s].exp_logits);
        }
    }
    const StepPlan whole = plan_step(model, {.ranks = kRanks}, {}, work_of({6, 4}, {}));
    EXPECT_EQ(whole.lowered.hash(), plan_step(model, {.ranks = kRanks}, {}, kWork).lowered.hash());
    EXPECT_EQ(with_lengths(whole, lengths).schedule.passes, whole.schedule.passes);
    EXPECT_EQ(with_lengths(whole, lengths).lowered.pipeline[2].tokens,
              plan.lowered.pipeline[2].tokens);
    EXPECT_EQ(with_lengths(plan, {{12, 12, 12, 12, 12}}).lowered.hash(), whole.lowered.hash());
}

TEST(StepPlan, OfLengthsNeedsNoMoreOfAnArenaThanTheLongest) {
    ModelConfig model = six_layers();
    model.seq_length = model.max_position_embeddings = 48;
    int as_longest = 0;
    for (const char* family : {"1f1b", "zb-h1", "v-half", "v-min", "zb-v", "interleaved"}) {
        for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
            const StepPlan longest = plan_step(
                model, {.ranks = 2}, {.name = family, .vocab_mode = mode}, work_of({32, 16}, {}));
            for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{48, 16, 32, 48, 16},
                                                        {16, 48, 48, 16, 32},
                                                        {32, 16, 16, 48, 32}}) {
                const StepPlan plan = with_lengths(longest, lengths);
                as_longest += plan.lowering.as_longest ? 1 : 0;
                for (size_t rank = 0; rank < 2; ++rank) {
                    EXPECT_LE(plan.lowered.pipeline[rank].arena_bytes,
                              longest.lowered.pipeline[rank].arena_bytes)
                        << family;
                }
            }
        }
    }
    EXPECT_GT(as_longest, 0) << "the orders and places of their own always sufficed";
}

TEST(StepPlan, RefusesLengthsThatItsRanksCannotShare) {
    const ModelConfig model = twelve_tokens();
    const auto refused = [&](StepCluster cluster, std::vector<int64_t> shorter,
                             std::vector<int64_t> lengths = {}) {
        try {
            (void)plan_step(model, cluster, {}, work_of(std::move(shorter), std::move(lengths)));
        } catch (const UsageError& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    EXPECT_EQ(refused({.context = 2}, {8, 4}), "");
    EXPECT_EQ(refused({.context = 2}, {6}),
              "sequences of 6 tokens: --context-parallel-size 2 requires a multiple of 4");
    EXPECT_EQ(refused({.tensor = 2}, {5}), "") << "two sequences of 5 tokens";
    EXPECT_THAT(
        refused({.tensor = 4}, {5}),
        HasSubstr("sequences of 5 tokens: --tensor-model-parallel-size 4 must divide the 10 "
                  "tokens"));
    for (const std::vector<int64_t>& shorter :
         {std::vector<int64_t>{12}, {13}, {4, 6}, {4, 4}, {0}, {-3}}) {
        EXPECT_THAT(refused({}, shorter), HasSubstr("descend from --seq-length 12"));
    }
    EXPECT_THAT(refused({}, {6}, {12, 6, 6, 12}),
                HasSubstr("has lengths for 4 microbatches, but the step has 5"));
    EXPECT_THAT(refused({}, {6}, {12, 6, 6, 12, 4}), HasSubstr("4 is neither --seq-length 12 nor"));
}

TEST(StepPlan, RefusesLengthsWherePositionsChangeWithThem) {
    ModelConfig model = twelve_tokens();
    model.learned_positions = false;
    model.rope.scaling = RopeScaling::dynamic;
    model.rope.factor = 2;
    model.rope.original_positions = 12;
    EXPECT_NO_THROW((void)plan_step(model, {}, {}, work_of({6}, {})));
    model.rope.original_positions = 8;
    EXPECT_THAT([&] { (void)plan_step(model, {}, {}, work_of({6}, {})); },
                ThrowsMessage<UsageError>(HasSubstr("change with the length; use one length, or")));
    EXPECT_NO_THROW((void)plan_step(model, {}, {}, kWork));
}

TEST(StepPlan, RecomputesAndEvaluates) {
    const ModelConfig model = six_layers();
    const StepPlan full =
        plan_step(model, {.ranks = kRanks}, {.recompute = Recompute::full}, kWork);
    EXPECT_TRUE(has_recomputation(full.schedule));
    EXPECT_EQ(full.sizes.stages.front().saved, 0);
    StepWork work = kWork;
    work.evaluation = true;
    work.optimizer = work.training = false;
    const StepPlan evaluation = plan_step(model, {.ranks = kRanks}, {}, work);
    EXPECT_TRUE(evaluation.schedule.forward_only());
    EXPECT_EQ(evaluation.schedule.passes,
              evaluation_schedule(plan_step(model, {.ranks = kRanks}, {}, kWork).schedule).passes);
}

TEST(StepPlan, TakesPassesThatExist) {
    const ModelConfig model = six_layers();
    const Schedule gpipe = make_schedule("gpipe", asked(model, VocabMode::two_barriers));
    const StepPlan plan = plan_step(model, {.ranks = kRanks}, {.passes = &gpipe}, kWork);
    EXPECT_EQ(plan.schedule.passes, gpipe.passes);
    EXPECT_EQ(plan.schedule.output, gpipe.output);
}

TEST(StepPlan, LeavesRoomForStagesOfOnesOwn) {
    const ModelConfig model = tiny_gpt(0, {.vocab_size = 53});
    const StageBytes mine{.saved = 640, .for_weight = 320, .backward_workspace = 320};
    const StepPlan plan =
        plan_step(model, {.ranks = kRanks}, {.name = "zb-h1", .stage_bytes = {3, mine}}, kWork);
    EXPECT_EQ(plan.partition.layers_per_stage, std::vector<int>(3, 0));
    for (const StageBytes& stage : plan.sizes.stages) EXPECT_EQ(stage.saved, 640);
}

TEST(StepPlan, RefusesWhatDoesNotFitTheStages) {
    const ModelConfig model = six_layers();
    EXPECT_THAT(
        [&] {
            (void)plan_step(model, {.ranks = kRanks}, {.layers_per_stage = {3, 3}}, kWork);
        },
        ThrowsMessage<UsageError>(
            "layers_per_stage are set for 2 stages, but the schedule has 3; both must be equal"));
    EXPECT_THAT(
        [&] {
            (void)plan_step(model, {.ranks = kRanks}, {.layers_per_stage = {3, 3, 3}}, kWork);
        },
        ThrowsMessage<UsageError>(HasSubstr("the stages hold 9 layers, but --num-layers is 6")));
    EXPECT_THAT(
        [&] {
            (void)plan_step(model, {.ranks = kRanks}, {.stage_bytes = std::vector<StageBytes>(4)},
                            kWork);
        },
        ThrowsMessage<UsageError>(HasSubstr("stage_bytes are set for 4 stages")));
    EXPECT_THAT([&] { (void)plan_step(model, {.ranks = 0}, {}, kWork); },
                ThrowsMessage<UsageError>("ScheduleOptions::ranks 0: must be at least 1"));
}

}  // namespace
}  // namespace vocabpipe::testing
