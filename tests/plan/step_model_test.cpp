// SPDX-License-Identifier: Apache-2.0
// What passes of a candidate are made of: units of one kind at a time.
#include "src/plan/step_model.hpp"

#include "src/model/parameter_groups.hpp"
#include "src/plan/candidates.hpp"
#include "src/plan/list_steps.hpp"
#include "src/plan/place_parameters.hpp"
#include "tests/plan/plan_cases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

using enum Op;
using ::testing::ElementsAre;

constexpr int64_t kLeast = 1;  // ns of a pass, however little it does

/// Two ranks with one and three layers.
Candidate uneven(VocabMode mode, int tensor = 1) {
    return {.schedule = "1f1b",
            .vocab_mode = mode,
            .layers_per_stage = {1, 3},
            .mesh = {.pipeline = 2, .tensor = tensor},
            .microbatches = 4};
}
PlanOptions thousand_rows() {
    PlanOptions options = small_plan();
    options.gpus = 2;
    options.model.config.num_layers = 4;
    options.model.config.vocab_size = 1000;
    return options;
}
/// Costs of four equal layers, beside others.
UnitCosts of_layers(const LayerTimes& layer, UnitCosts others = {}) {
    others.layers.assign(4, layer);
    return others;
}
/// The times of a pass on both ranks.
std::vector<int64_t> pass_times(const PlanOptions& options, UnitCosts units,
                                const Candidate& candidate, Op op) {
    units.layers.resize(4);
    const StepModel step = step_model(options, units, candidate);
    std::vector<int64_t> times;
    for (int rank = 0; rank < 2; ++rank) {
        times.push_back(step.costs.pass_ns(rank * candidate.mesh.slices(),
                                           {op, static_cast<uint16_t>(rank), 0}));
    }
    return times;
}

TEST(StepModel, PassesOfAStageAreThoseOfItsLayers) {
    const PlanOptions options = thousand_rows();
    const UnitCosts units = of_layers({.forward = 100,
                                       .input_gradient = 110,
                                       .weight_gradient = 120,
                                       .backward = 230,
                                       .recompute = 40},
                                      {.overlapped = 1.5});
    const auto times = [&](VocabMode mode, Op op, Recompute recompute = Recompute::none) {
        Candidate candidate = uneven(mode);
        candidate.recompute = recompute;
        return pass_times(options, units, candidate, op);
    };
    for (const VocabMode mode : {VocabMode::none, VocabMode::redistributed}) {
        EXPECT_THAT(times(mode, F), ElementsAre(100, 300));
        EXPECT_THAT(times(mode, I), ElementsAre(110, 330));
        EXPECT_THAT(times(mode, W), ElementsAre(120, 360));
        EXPECT_THAT(times(mode, B), ElementsAre(230, 690));
        EXPECT_THAT(times(mode, R, Recompute::selective), ElementsAre(40, 120));
    }
    // Beside collectives of vocabulary shards.
    for (const VocabMode mode :
         {VocabMode::interlaced, VocabMode::one_barrier, VocabMode::two_barriers}) {
        EXPECT_THAT(times(mode, F), ElementsAre(150, 450));
        EXPECT_THAT(times(mode, I), ElementsAre(165, 495));
        EXPECT_THAT(times(mode, W), ElementsAre(180, 540));
        EXPECT_THAT(times(mode, B), ElementsAre(345, 1035));
        EXPECT_THAT(times(mode, R, Recompute::full), ElementsAre(60, 180));
    }
}

TEST(StepModel, PassesMakeNoGradientsOfFrozenTensors) {
    PlanOptions options = thousand_rows();
    const UnitCosts units =
        of_layers({.input_gradient = 110, .weight_gradient = 120, .backward = 225},
                  {.output_gradient = {.per_row = 1}, .output_weight_gradient = {.per_row = 3}});
    const auto times = [&](const char* group, Op op) {
        use_parameter_groups(options, {parse_parameter_group(group)});
        return pass_times(options, units, uneven(VocabMode::none), op);
    };
    EXPECT_THAT(times("*.h.0.*:freeze", I), ElementsAre(110, 330));
    EXPECT_THAT(times("*.h.0.*:freeze", W), ElementsAre(kLeast, 360));
    EXPECT_THAT(times("*.h.0.*:freeze", B), ElementsAre(110, 675));
    EXPECT_THAT(times("*.h.1.*:freeze", W), ElementsAre(120, 240)) << "one of three layers";
    EXPECT_THAT(times("*.h.1.*:freeze", B), ElementsAre(225, 560));
    EXPECT_THAT(times("*.h.1.*:freeze", T), ElementsAre(kLeast, 4'000));
    EXPECT_THAT(times("lm_head*:freeze", T), ElementsAre(kLeast, 1'000));
    EXPECT_THAT(times("lm_head*:freeze", W), ElementsAre(120, 360));
    // c_fc and c_proj of the MLP are 8 h^2 of 12 h^2 elements, and biases and norms few.
    EXPECT_NEAR(static_cast<double>(times("*.mlp.*:freeze", W)[1]), 120, 1);
    EXPECT_NEAR(static_cast<double>(times("*.mlp.*:freeze", B)[1]), 330 + 115, 1);
}

TEST(StepModel, OneRankHasNoCollectivesToOverlap) {
    PlanOptions options = thousand_rows();
    options.gpus = 1;
    Candidate candidate = uneven(VocabMode::one_barrier);
    candidate.layers_per_stage = {4};
    candidate.mesh.pipeline = 1;
    const StepModel step =
        step_model(options, of_layers({.forward = 100}, {.overlapped = 1.5}), candidate);
    EXPECT_EQ(step.costs.pass_ns(0, {F, 0, 0}), 400);
}

TEST(StepModel, TheInputGradientOfTheOutputLayerIsOfSWithOneBarrierAndElseOfT) {
    const PlanOptions options = thousand_rows();
    const UnitCosts units{.output_gradient = {.fixed = 7, .per_row = 10}};
    const auto times = [&](VocabMode mode, Op op) {
        return pass_times(options, units, uneven(mode), op);
    };
    EXPECT_THAT(times(VocabMode::one_barrier, S), ElementsAre(5'007, 5'007));
    EXPECT_THAT(times(VocabMode::one_barrier, T), ElementsAre(kLeast, kLeast));
    for (const VocabMode mode : {VocabMode::two_barriers, VocabMode::interlaced}) {
        EXPECT_THAT(times(mode, S), ElementsAre(kLeast, kLeast));
        EXPECT_THAT(times(mode, T), ElementsAre(5'007, 5'007));
    }
    EXPECT_THAT(times(VocabMode::none, S), ElementsAre(kLeast, kLeast));
    EXPECT_THAT(times(VocabMode::none, T), ElementsAre(kLeast, 10'007)) << "on the last rank";
}

TEST(StepModel, LogitsAreOfSTheWeightGradientOfTAndTwoThirdsOfTheSoftmaxOfS) {
    const PlanOptions options = thousand_rows();
    const auto times = [&](const UnitCosts& units, VocabMode mode, Op op, int tensor = 1) {
        return pass_times(options, units, uneven(mode, tensor), op);
    };
    const UnitCosts logits{.logits = {.fixed = 7, .per_row = 10}};
    const UnitCosts weight{.output_weight_gradient = {.fixed = 7, .per_row = 10}};
    for (const VocabMode mode : {VocabMode::one_barrier, VocabMode::two_barriers}) {
        EXPECT_THAT(times(logits, mode, S), ElementsAre(5'007, 5'007));
        EXPECT_THAT(times(logits, mode, T), ElementsAre(kLeast, kLeast));
        EXPECT_THAT(times(weight, mode, S), ElementsAre(kLeast, kLeast));
        EXPECT_THAT(times(weight, mode, T), ElementsAre(5'007, 5'007));
    }
    const UnitCosts softmax{.softmax_per_row = 6, .whole_softmax_per_row = 3};
    EXPECT_THAT(times(softmax, VocabMode::two_barriers, S), ElementsAre(2'000, 2'000));
    EXPECT_THAT(times(softmax, VocabMode::two_barriers, T), ElementsAre(1'000, 1'000));
    EXPECT_THAT(times(softmax, VocabMode::none, S), ElementsAre(kLeast, 2'000));
    EXPECT_THAT(times(softmax, VocabMode::none, T), ElementsAre(kLeast, 1'000));
    // Tensor ranks share the rows of a place.
    EXPECT_THAT(times(logits, VocabMode::one_barrier, S, 2), ElementsAre(2'507, 2'507));
    EXPECT_THAT(times(logits, VocabMode::none, S, 3), ElementsAre(kLeast, 3'347));
}

TEST(StepModel, EveryPassOfTheVocabularyHasAFixedTimeWhereThereAreRows) {
    const PlanOptions options = thousand_rows();
    const auto times = [&](const UnitCosts& units, VocabMode mode, Op op) {
        return pass_times(options, units, uneven(mode), op);
    };
    const UnitCosts fixed{.vocabulary_pass = 50};
    for (const Op op : {E, G, S, T}) {
        EXPECT_THAT(times(fixed, VocabMode::two_barriers, op), ElementsAre(50, 50));
        const bool input = op == E || op == G;
        EXPECT_THAT(times(fixed, VocabMode::none, op),
                    ElementsAre(input ? 50 : kLeast, input ? kLeast : 50));
    }
    // E goes through the rows of all tokens, G through those of the shard.
    const UnitCosts embedding{.embedding = 300, .embedding_gradient = 800};
    EXPECT_THAT(times(embedding, VocabMode::two_barriers, E), ElementsAre(300, 300));
    EXPECT_THAT(times(embedding, VocabMode::two_barriers, G), ElementsAre(400, 400));
    EXPECT_THAT(times(embedding, VocabMode::none, E), ElementsAre(300, kLeast));
    EXPECT_THAT(times(embedding, VocabMode::none, G), ElementsAre(800, kLeast));
}

TEST(StepModel, ReportAndUpdateGoThroughTheParametersOfARank) {
    PlanOptions options = thousand_rows();
    const UnitCosts units{.per_parameter_byte = 1};
    Candidate candidate = uneven(VocabMode::none);
    const int64_t table = 1000 * 1024, positions = 2048 * 1024, norm = 2 * 1024;
    // Four h^2 and 2 h f; biases of 3 h, f, h and h; two norms.
    const int64_t layer = 4 * 1024 * 1024 + 2 * 1024 * 4096 + 3 * 1024 + 4096 + 2 * 1024 + 2 * norm;
    const int64_t first = layer + positions + table, last = 3 * layer + norm + table;
    EXPECT_THAT(pass_times(options, units, candidate, Report), ElementsAre(4 * first, 4 * last));
    EXPECT_THAT(pass_times(options, units, candidate, Update), ElementsAre(30 * first, 30 * last));
    // Replicas share sums of the norm and updates alike.
    candidate.mesh.data = 2;
    EXPECT_THAT(pass_times(options, units, candidate, Report), ElementsAre(2 * first, 2 * last));
    EXPECT_THAT(pass_times(options, units, candidate, Update), ElementsAre(15 * first, 15 * last));
    // A rank with both layers of a tied weight has two gradients of it, and updates it once.
    candidate = uneven(VocabMode::one_barrier);
    options.model.config.tied = true;
    const int64_t rest = layer + positions;
    EXPECT_EQ(pass_times(options, units, candidate, Report)[0], 4 * (rest + table));
    EXPECT_EQ(pass_times(options, units, candidate, Update)[0], 30 * (rest + table / 2));
}

// The first layer's input is the boundary that a stage receives, unless positions are added to it;
// the last stage keeps the input of the last norm, and its mean and deviation.
TEST(StepModel, AStageKeepsWhatItsLayersSaveBesideItsInput) {
    PlanOptions options = thousand_rows();
    const auto saved = [&](std::vector<int> layers) {
        Candidate candidate = uneven(VocabMode::none);
        candidate.layers_per_stage = std::move(layers);
        const StepModel step = step_model(options, of_layers({}), candidate);
        return std::pair(step.sizes.stages[0].saved, step.sizes.stages[1].saved);
    };
    const int64_t tokens = 1024, x = tokens * 1024 * 2, statistics = tokens * 2 * 4;
    // 8 h + 2 f elements; mean and deviation of two norms, and a number per head.
    const int64_t layer = tokens * (2 * (8 * 1024 + 2 * 4096) + 4 * (2 * 2 + 16));
    EXPECT_EQ(saved({1, 3}), std::pair(layer, 3 * layer + statistics));
    EXPECT_EQ(saved({4, 0}), std::pair(4 * layer, statistics)) << "the norm reads the boundary";
    EXPECT_EQ(saved({0, 4}), std::pair(int64_t{0}, 4 * layer + statistics));
    options.model.config.learned_positions = false;
    EXPECT_EQ(saved({1, 3}), std::pair(layer - x, 3 * layer + statistics));
    EXPECT_EQ(saved({0, 4}), std::pair(int64_t{0}, 4 * layer + statistics));
    options.model.config.embedding_scale = 2;  // scaled tokens are kept as those with positions
    EXPECT_EQ(saved({1, 3}), std::pair(layer, 3 * layer + statistics));
}

TEST(StepModel, StagesHaveExpertsWhereTheirLayersHave) {
    PlanOptions options = thousand_rows();
    const auto has_experts = [&] {
        return step_model(options, of_layers({}), uneven(VocabMode::none)).sizes.has_experts;
    };
    EXPECT_THAT(has_experts(), ElementsAre(false, false));
    options.model.config.moe = {.experts = 4, .top_k = 2, .ffn_hidden_size = 32};
    EXPECT_THAT(has_experts(), ElementsAre(true, true));
    options.model.config.moe.sparse = {false, false, false, true};
    EXPECT_THAT(has_experts(), ElementsAre(false, true));
}

TEST(StepModel, ADeviceReservesMemoryAndARotaryTableIsAWeight) {
    PlanOptions options = thousand_rows();
    options.device.reserve_gib.value = 1.5;
    const Candidate candidate = uneven(VocabMode::none);
    const auto rank = [&](size_t r) {
        return step_model(options, of_layers({}), candidate).persistent[r];
    };
    EXPECT_EQ(rank(0).reserve, 3 * (int64_t{1} << 29));
    const int64_t learned = rank(1).weights;
    ModelConfig& config = options.model.config;
    config.learned_positions = false;
    EXPECT_EQ(rank(1).weights - learned, 1024 * 64 * 4) << "tokens, columns of a head, fp32";
    config.sliding_window = 8;
    config.windowed = {true, false, false, false};
    config.windowed_rope = Rope{.theta = 100};
    EXPECT_EQ(rank(1).weights - learned, 2 * 1024 * 64 * 4) << "two kinds of positions";
    config.windowed_rope.reset();
    config.rotary_channels = 16;
    EXPECT_EQ(rank(1).weights - learned, 1024 * 16 * 4);
}

/// thousand_rows() on links of a byte per nanosecond with a latency of 7.
PlanOptions with_simple_links() {
    PlanOptions options = thousand_rows();
    options.device.link_gb_per_s.value = options.device.link_efficiency.value = 1;
    options.device.message_efficiency.value = 1;
    options.device.link_latency_us.value = 7e-3;
    options.device.gpus_per_node.value = 64;
    return options;
}

TEST(StepModel, TensorRanksPutSlicesOfXTogetherForS) {
    const PlanOptions options = with_simple_links();
    const int64_t x = 1024 * 1024 * 2;
    const PassCosts alone =
        step_model(options, of_layers({.forward = 1}), uneven(VocabMode::one_barrier))
            .generate.costs;
    EXPECT_EQ(alone.hop, 7 + x);
    EXPECT_EQ(alone.c0, 7 + x);
    const PassCosts two =
        step_model(options, of_layers({.forward = 1}), uneven(VocabMode::one_barrier, 2))
            .generate.costs;
    EXPECT_EQ(two.hop, 7 + x / 2);
    EXPECT_EQ(two.c0, 7 + x / 2 + 7 + x / 2);
}

// Two ranks with one and three layers, and the stages of a V.
TEST(StepModel, PassesWaitForTheMessagesTheySendIfTheyAreNotOverlapped) {
    PlanOptions options = with_simple_links();
    options.trainer.overlap_messages = false;
    const UnitCosts units = of_layers({.forward = 100,
                                       .input_gradient = 110,
                                       .weight_gradient = 120,
                                       .backward = 230,
                                       .recompute = 40});
    const auto times = [&](Candidate candidate, Op op) {
        candidate.recompute = Recompute::full;
        std::vector<int64_t> of_stage;
        for (const auto& costs : step_model(options, units, candidate).costs.stage_ns) {
            of_stage.push_back(costs[static_cast<size_t>(op)]);
        }
        return of_stage;
    };
    const int64_t message = 7 + 1024 * 1024 * 2;
    const Candidate two = uneven(VocabMode::none);
    EXPECT_THAT(times(two, F), ElementsAre(100 + message, 300));
    EXPECT_THAT(times(two, I), ElementsAre(110, 330 + message));
    EXPECT_THAT(times(two, B), ElementsAre(230, 690 + message));
    EXPECT_THAT(times(two, W), ElementsAre(120, 360));
    EXPECT_THAT(times(two, R), ElementsAre(40, 120));
    Candidate v = two;
    v.schedule = "zb-v";
    v.chunks = 2;
    v.layers_per_stage = {1, 1, 1, 1};
    EXPECT_THAT(times(v, F), ElementsAre(100 + message, 100, 100 + message, 100));
    EXPECT_THAT(times(v, I), ElementsAre(110, 110 + message, 110, 110 + message));
    EXPECT_THAT(times(v, B), ElementsAre(230, 230 + message, 230, 230 + message));
    // Tensor ranks send a part of the rows each.
    EXPECT_THAT(times(uneven(VocabMode::none, 2), F), ElementsAre(100 + 7 + 1024 * 1024, 300));
}

TEST(StepModel, TheMarginOfC0IsItAndAHopAndHalfABackwardAtMost) {
    PlanOptions options = thousand_rows();
    options.device.link_gb_per_s.value = options.device.link_efficiency.value = 1;
    options.device.message_efficiency.value = 1;
    options.device.link_latency_us.value = 7e-3;
    const auto margin = [&](double backward) {
        return step_model(options, of_layers({.backward = backward}),
                          uneven(VocabMode::one_barrier))
            .generate.rule.broadcast_margin;
    };
    EXPECT_EQ(margin(1e9), 2 * (7 + 1024 * 1024 * 2));
    EXPECT_EQ(margin(1000), (1000 + 3000) / 2 / 2);
}

/// The limits of all candidates for so many ranks, one GPU each.
std::vector<int> memory_limits(const std::string& family, int ranks) {
    PlanOptions options = small_plan();
    options.gpus = ranks;
    options.schedules = {family};
    options.vocab_modes = {VocabMode::none};
    std::vector<int> limits;
    for (const Candidate& candidate : list_candidates(options).possible) {
        limits.push_back(candidate.memory_limit);
    }
    return limits;
}

TEST(Candidates, MemoryLimitsLieBetweenThoseOfOtherFamiliesAndTakeThreeRanks) {
    EXPECT_THAT(memory_limits("zb", 2), ElementsAre(0));
    EXPECT_THAT(memory_limits("zb", 4), ElementsAre(6));
    EXPECT_THAT(memory_limits("v-search", 2), ElementsAre(0));
    EXPECT_THAT(memory_limits("v-search", 4), ElementsAre(0, 6));
    EXPECT_THAT(memory_limits("1f1b", 4), ElementsAre(0));
    PlanOptions options = small_plan();
    options.gpus = 3;
    options.schedules = {"zb"};
    options.vocab_modes = {VocabMode::one_barrier};
    const std::vector<Candidate> three = list_candidates(options).possible;
    ASSERT_EQ(three.size(), 2U) << "8 layers on 3 ranks, left over to the front or the back";
    for (const Candidate& candidate : three) EXPECT_EQ(candidate.memory_limit, 3 + 1);
}

TEST(Candidates, ChunksMayBeAsManyAsLayersAndNoMore) {
    PlanOptions options = small_plan();  // 8 layers, 4 ranks
    options.schedules = {"interleaved"};
    options.vocab_modes = {VocabMode::none};
    const auto chunks = [&] {
        std::vector<int> listed;
        for (const Candidate& candidate : list_candidates(options).possible) {
            listed.push_back(candidate.chunks);
        }
        return listed;
    };
    EXPECT_THAT(chunks(), ElementsAre(2));
    options.model.config.num_layers = 16;
    EXPECT_THAT(chunks(), ElementsAre(2, 4));
    options.model.config.num_layers = 15;
    EXPECT_THAT(chunks(), ElementsAre(2, 2)) << "front and back";
    options.model.config.num_layers = 16;
    options.chunks = {3, 4};
    EXPECT_THAT(chunks(), ElementsAre(3, 3, 4));
}

TEST(ListSteps, EveryTensorRankHasARowOfTheVocabulary) {
    PlanOptions options = small_plan();
    options.gpus = 8;
    options.tensor = {4};
    options.model.config.vocab_size = 8;  // four rows for each of two places
    EXPECT_EQ(list_steps(options, ModelOnDevice(options)).possible.size(), 1U);
    options.model.config.vocab_size = 7;
    const Candidates refused = list_steps(options, ModelOnDevice(options));
    EXPECT_EQ(refused.possible.size(), 0U);
    ASSERT_EQ(refused.skipped.size(), 1U);
    EXPECT_EQ(refused.skipped.front().second,
              "a vocabulary of 7 rows (--vocab-size) has less than one for every rank");
}

TEST(ListSteps, ABatchIsDividedByReplicasAndMicrobatches) {
    PlanOptions options = small_plan();  // 16 sequences
    options.data = {2};
    options.micro_batch_sizes = {1, 4, 8, 16};
    const Candidates steps = list_steps(options, ModelOnDevice(options));
    std::vector<int> microbatches;
    for (const Candidate& step : steps.possible) {
        EXPECT_EQ(step.mesh.pipeline, 2);
        microbatches.push_back(step.microbatches);
    }
    EXPECT_THAT(microbatches, ElementsAre(8, 2, 1));
    EXPECT_EQ(steps.skipped.size(), 1U);
}

TEST(ListSteps, TensorRanksDivideWhatTheyShare) {
    PlanOptions options = small_plan();
    options.gpus = 4;
    options.tensor = {4};
    const auto reason = [&] {
        const Candidates steps = list_steps(options, ModelOnDevice(options));
        return steps.skipped.empty() ? std::string() : steps.skipped.front().second;
    };
    EXPECT_EQ(reason(), "");
    options.model.config.num_attention_heads = 18;
    EXPECT_EQ(reason(), "t=4 does not divide the 18 heads");
    options.model = small_gpt();
    options.model.config.num_query_groups = 2;
    EXPECT_EQ(reason(), "t=4 does not divide the 2 key/value heads");
    options.model = small_gpt();
    options.model.config.ffn_hidden_size = 4098;
    EXPECT_EQ(reason(), "t=4 does not divide the 4098 columns of the MLP");
    // Experts in all layers in place of it; their shared one has columns, too, unless it is gated.
    MoeConfig& moe = options.model.config.moe;
    moe = {.experts = 4, .top_k = 2, .ffn_hidden_size = 30};
    EXPECT_EQ(reason(), "");
    moe.shared_expert = true;
    moe.shared_gate = false;
    EXPECT_EQ(reason(), "t=4 does not divide the 30 columns of the shared expert");
    moe.shared_gate = true;
    EXPECT_EQ(reason(), "");
    moe.sparse.assign(8, true);
    moe.sparse.front() = false;
    EXPECT_EQ(reason(), "t=4 does not divide the 4098 columns of the MLP");
}

TEST(ListSteps, ExpertTeamsNestWithTensorTeams) {
    PlanOptions options = small_plan();
    options.gpus = 6;
    options.model.config.moe = {.experts = 6, .top_k = 2, .ffn_hidden_size = 30};
    options.pipeline = {1};
    options.global_batch_size = 6;
    options.tensor = {2};
    const auto reason = [&](int expert) {
        options.expert = {expert};
        const Candidates steps = list_steps(options, ModelOnDevice(options));
        return steps.skipped.empty() ? std::string() : steps.skipped.front().second;
    };
    EXPECT_EQ(reason(1), "");
    EXPECT_EQ(reason(2), "");
    EXPECT_EQ(reason(6), "");
    EXPECT_EQ(reason(3), "e=3 is neither a divisor nor a multiple of t=2");
}

TEST(ListSteps, RanksShareExpertsByEqualParts) {
    PlanOptions options = small_plan();
    options.gpus = 8;
    options.model.config.moe = {.experts = 4, .top_k = 2, .ffn_hidden_size = 30};
    options.pipeline = {1};
    options.global_batch_size = 8;
    const auto reason = [&](int expert, int expert_tensor, int tensor = 1) {
        options.expert = {expert};
        options.expert_tensor = {expert_tensor};
        options.tensor = {tensor};
        const Candidates steps = list_steps(options, ModelOnDevice(options));
        return steps.skipped.empty() ? std::string() : steps.skipped.front().second;
    };
    EXPECT_EQ(reason(4, 2), "");
    EXPECT_EQ(reason(1, 2, 8), "");
    EXPECT_EQ(reason(1, 4), "x=4 does not divide the 30 columns of an expert");
    EXPECT_EQ(reason(4, 6), "e x=24 does not divide t d");
    options.gpus = 12;
    options.global_batch_size = 12;
    EXPECT_EQ(reason(1, 3, 2), "e x=3 is neither a divisor nor a multiple of t=2");
    options.model.config.moe = {};
    EXPECT_EQ(reason(1, 2), "the model has no experts: x must be 1");
}

}  // namespace
}  // namespace vocabpipe::testing
