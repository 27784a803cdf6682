// SPDX-License-Identifier: Apache-2.0
// Plans with context ranks: which there are, what they exchange, how much of it attention hides,
// what they save, and how they are run.
#include "src/plan/context_costs.hpp"

#include "src/plan/candidates.hpp"
#include "src/plan/step_model.hpp"
#include "src/plan/unit_costs.hpp"
#include "tests/plan/plan_cases.hpp"
#include "tests/schedule/small_profile.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Costs, by hand.

/// h = 8 in four heads of 2; 48 tokens in 3 sequences. Everything but links takes no time; they
/// move a byte per nanosecond.
PlanOptions on_links(int64_t kv_heads = 4) {
    PlanOptions options;
    options.model = {.name = "narrow",
                     .config = {.num_layers = 2,
                                .hidden_size = 8,
                                .ffn_hidden_size = 32,
                                .num_attention_heads = 4,
                                .num_query_groups = kv_heads == 4 ? 0 : kv_heads,
                                .max_position_embeddings = 16,
                                .vocab_size = 100}};
    options.seq_length = 16;
    options.device = instant_device();
    options.device.link_gb_per_s.value = options.device.network_gb_per_s.value = 1;
    return options;
}
Candidate of_context(int context, ContextForm form = ContextForm::allgather, int tensor = 1) {
    return {.mesh = {.tensor = tensor, .context = context},
            .micro_batch_size = 3,
            .context_form = form};
}
BlockWork attention_of(const PlanOptions& options) {
    const ModelConfig& config = options.model.config;
    return {.heads = config.num_attention_heads,
            .query_columns = config.num_attention_heads * config.head_size(),
            .kv_columns = 2 * config.kv_heads() * config.head_size()};
}
ContextCosts costs_of(const PlanOptions& options, const Candidate& candidate) {
    return context_costs(ModelOnDevice(options), candidate, candidate.context_form,
                         attention_of(options));
}

TEST(ContextCosts, AttentionHidesAllPanelsButTheFirst) {
    const ContextCosts four{.panels = 4};
    // 100 until the first panel is there, then 1000 of attention beside 300 of the others.
    expect_near(four.beside(400, 1000), 1100);
    // All four arrive one after the other, and attention of the last one follows.
    expect_near(four.beside(400, 100), 425);
    expect_near(ContextCosts{.panels = 1}.beside(400, 100), 500);
    expect_near(ContextCosts{}.beside(0, 100), 100);
}

TEST(ContextCosts, GatheredKeysAreThoseOfAllOtherRanks) {
    // k and v of 48 tokens, 8 elements of 2 bytes each: 1536 bytes, of which 1 / C are there.
    const PlanOptions options = on_links();
    for (const int ranks : {2, 4}) {
        const ContextCosts costs = costs_of(options, of_context(ranks));
        expect_near(costs.forward, 1536.0 * (ranks - 1) / ranks);
        expect_near(costs.backward, 2 * costs.forward);  // and their gradients
        EXPECT_EQ(costs.panels, 4);
    }
    const ContextCosts grouped = costs_of(on_links(2), of_context(2));
    expect_near(grouped.forward, 384);
    EXPECT_EQ(grouped.panels, 2);
    const ContextCosts shared = costs_of(options, of_context(2, ContextForm::allgather, 2));
    expect_near(shared.forward, 384);  // half of the heads
    EXPECT_EQ(shared.panels, 2);
    EXPECT_EQ(costs_of(options, of_context(1)).forward, 0);
}

TEST(ContextCosts, ExchangedHeadsAreTheOwnTokensOnceThereAndBack) {
    const PlanOptions options = on_links();
    for (const int ranks : {2, 4}) {
        const ContextCosts costs = costs_of(options, of_context(ranks, ContextForm::a2a));
        // q, k and v there, out back: 32 elements of 48 / C tokens, of which 1 / C stay.
        const double own = 48.0 / ranks * 2 * (ranks - 1) / ranks;
        expect_near(costs.forward, 32 * own);
        // q, k, v, out and its gradient there, three gradients back.
        expect_near(costs.backward, 64 * own);
        EXPECT_EQ(costs.panels, 4 / ranks);
    }
    // Two heads of keys make 8 + 8 + 8 elements; 8 + 8 + 16 and 8 + 8.
    const ContextCosts grouped = costs_of(on_links(2), of_context(2, ContextForm::a2a));
    expect_near(grouped.forward, 24 * 24);
    expect_near(grouped.backward, 48 * 24);
    EXPECT_EQ(grouped.panels, 1);
}

TEST(ContextCosts, GrowOnSlowerLinksAndOnTheNetwork) {
    PlanOptions options = on_links();
    options.device.link_gb_per_s.value = 0.25;
    options.device.link_latency_us.value = 0.002;
    expect_near(costs_of(options, of_context(4)).forward, 2 + 4 * 1152);
    // Two ranks of a node share its sending among their network adapters.
    options.device.link_gb_per_s.value = 1e20;
    options.device.gpus_per_node.value = 2;
    options.device.network_gb_per_s.value = 0.25;
    options.device.network_latency_us.value = 0.003;
    expect_near(costs_of(options, of_context(4)).forward, 3 + 4 * 1152 / 2.0);
    expect_near(costs_of(options, of_context(2)).forward, 2);  // one node
}

TEST(ContextCosts, TheFormSendsLessAmongThoseThatTheHeadsAllow) {
    const auto form = [](int64_t kv_heads, const Candidate& candidate) {
        return faster_context_form(ModelOnDevice(on_links(kv_heads)), candidate);
    };
    EXPECT_EQ(form(4, of_context(1)), ContextForm::allgather);
    // 1536 / 2 three times, and (32 + 64) 24: as much.
    EXPECT_EQ(form(4, of_context(2)), ContextForm::allgather);
    // 1536 3 / 4 three times, but (32 + 64) 18.
    EXPECT_EQ(form(4, of_context(4)), ContextForm::a2a);
    EXPECT_EQ(form(4, of_context(4, {}, 2)), ContextForm::allgather) << "two heads of a rank";
    EXPECT_EQ(form(2, of_context(2)), ContextForm::allgather) << "few keys are soon gathered";
    EXPECT_EQ(form(2, of_context(4)), ContextForm::allgather) << "two heads of keys";
}

LayerTimes layer_of(const PlanOptions& options, const Candidate& candidate) {
    return unit_costs(ModelOnDevice(options), candidate).layers.front();
}

TEST(ContextCosts, OfALayerAreWhatItsAttentionDoesNotHide) {
    PlanOptions options = on_links();
    Candidate candidate = of_context(2);
    expect_near(layer_of(options, candidate).forward, 768);
    expect_near(layer_of(options, candidate).input_gradient, 2 * 768);
    expect_near(layer_of(options, candidate).weight_gradient, 0);
    // 24 tokens see 8 keys in the mean: 24 4 8 8 FLOPs at one per ns.
    options.device.attention_efficiency.value = 0.001;
    candidate.recompute = Recompute::full;
    const LayerTimes hidden = layer_of(options, candidate);
    expect_near(hidden.forward, 768 / 4.0 + 6144);
    expect_near(hidden.backward, 1536 / 4.0 + 2.5 * 6144);
    expect_near(hidden.recompute, hidden.forward);
    options.device.attention_efficiency.value = 0.05;  // 122.88 ns
    expect_near(layer_of(options, candidate).forward, 768 + 122.88 / 4);
    candidate.context_form = ContextForm::a2a;  // 32 24 in two panels
    expect_near(layer_of(options, candidate).forward, 768 + 122.88 / 2);
}

// Candidates.

PlanOptions long_sequences() {
    PlanOptions options = small_plan();
    options.schedules = {"1f1b"};
    options.vocab_modes = {VocabMode::one_barrier};
    options.sensitivity_rows = 0;
    options.gpus = 8;
    options.context = {1, 2, 4};
    return options;
}
std::string refusal(const PlanOptions& options) {
    try {
        (void)make_plan(options);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

TEST(PlanContext, RanksTakeTheirPartOfTheGpus) {
    PlanOptions options = long_sequences();
    options.tensor = {1, 2};
    EXPECT_THAT(meshes(options),
                ElementsAre("p=8", "p=4 t=2", "p=4 C=2", "p=2 t=2 C=2", "p=2 C=4", "p=1 t=2 C=4"));
    options.data = {2};
    EXPECT_THAT(meshes(options), ElementsAre("p=4 d=2", "p=2 t=2 d=2", "p=2 C=2 d=2",
                                             "p=1 t=2 C=2 d=2", "p=1 C=4 d=2"));
    options.data.clear();
    options.pipeline = {2};
    EXPECT_THAT(meshes(options),
                ElementsAre("p=2 d=4", "p=2 t=2 d=2", "p=2 C=2 d=2", "p=2 t=2 C=2", "p=2 C=4"));
    options.context = {3};
    EXPECT_THAT(refusal(options),
                HasSubstr("--gpus 8: is not the product of any listed "
                          "--tensor-model-parallel-size, --context-parallel-size"));
    options.context = {0};
    EXPECT_THAT(refusal(options), HasSubstr("--context-parallel-size 0"));
}

TEST(PlanContext, LeavesOutSequencesAndTeamsThatDoNotDivide) {
    PlanOptions options = long_sequences();
    options.seq_length = 1022;
    EXPECT_THAT(
        reasons(options),
        ElementsAre("C=2 does not divide the 1022 tokens of a sequence into two segments for "
                    "every rank",
                    "C=4 does not divide the 1022 tokens of a sequence into two segments for "
                    "every rank"));
    options.seq_length = 12;
    options.context = {2};
    options.tensor = {4};
    EXPECT_THAT(reasons(options), ElementsAre("t=4 does not divide the 6 tokens of a microbatch"));
    options.seq_length = 1020;
    set_family(options.model.config, "mixtral");
    options.model.config.moe.experts = 8;
    options.gpus = 12;
    options.global_batch_size = 24;
    options.tensor = {2};
    options.context = {3};
    options.pipeline = {1};
    options.expert = {4, 8};
    EXPECT_THAT(reasons(options),
                ElementsAre("e=4 is neither a divisor nor a multiple of t=2 and of t C=6",
                            "e=8 does not divide t C d"));
}

TEST(PlanContext, ProfilesSayNothingOfIt) {
    PlanOptions options = small_plan();
    use_profile(options, small_profile());
    options.context = {2};
    EXPECT_THAT(refusal(options),
                HasSubstr("which says nothing of tensor, context or expert ranks"));
}

// Memory.

StepModel model_of(const PlanOptions& options, const Mesh& mesh) {
    const Candidate candidate{.schedule = "1f1b",
                              .vocab_mode = VocabMode::one_barrier,
                              .layers_per_stage = {4, 4},
                              .mesh = mesh,
                              .microbatches = 4};
    return step_model(options, unit_costs(ModelOnDevice(options), candidate), candidate);
}

TEST(PlanContext, SharesTokensAndWhatIsKeptOfThem) {
    PlanOptions options = small_plan();
    set_family(options.model.config, "llama");
    const StepModel whole = model_of(options, {.pipeline = 2});
    EXPECT_EQ(whole.sizes.tokens, 1024);
    for (const int ranks : {2, 4}) {
        const StepModel part = model_of(options, {.pipeline = 2, .context = ranks});
        EXPECT_EQ(part.sizes.tokens, 1024 / ranks);
        EXPECT_EQ(part.sizes.context, ranks);
        for (size_t stage = 0; stage < 2; ++stage) {
            EXPECT_EQ(part.sizes.stages[stage].saved * ranks, whole.sizes.stages[stage].saved);
            // Keys of all tokens, and gradients that arrive from all ranks, in bf16.
            EXPECT_GT(part.sizes.stages[stage].input_gradient_workspace,
                      int64_t{2} * 1024 * 2 * 1024 * 2);
        }
        // Rotary positions of its own tokens: cosine and sine of 32 angles, in fp32.
        EXPECT_EQ(whole.persistent[0].weights - part.persistent[0].weights,
                  (1024 - 1024 / ranks) * 64 * 4);
    }
}

TEST(PlanContext, SharesOptimizerStateLikeReplicas) {
    const PlanOptions options = small_plan();
    const StepModel context = model_of(options, {.pipeline = 2, .context = 4});
    const StepModel replicas = model_of(options, {.pipeline = 2, .data = 4});
    for (size_t rank = 0; rank < 2; ++rank) {
        EXPECT_EQ(context.persistent[rank].optimizer, replicas.persistent[rank].optimizer);
        EXPECT_EQ(context.persistent[rank].weights, replicas.persistent[rank].weights);
        ASSERT_EQ(context.sizes.buckets[rank].size(), replicas.sizes.buckets[rank].size());
        EXPECT_FALSE(context.sizes.buckets[rank].empty());
    }
}

// Reports.

TEST(PlanContext, NeedsLessMemoryAndSaysSo) {
    PlanOptions options = long_sequences();
    options.pipeline = {2};
    options.data = {1, 2, 4};
    const Plan plan = make_plan(options);
    ASSERT_EQ(plan.rows.size(), 3U);
    std::vector<double> activations(5);
    for (const PlanRow& row : plan.rows) {
        activations[static_cast<size_t>(row.candidate.mesh.context)] =
            static_cast<double>(row.worst.activations);
    }
    EXPECT_LT(activations[2], 0.7 * activations[1]);
    EXPECT_LT(activations[4], 0.7 * activations[2]);
    const std::string text = plan_text(plan, 9);
    EXPECT_THAT(text, HasSubstr("p  t  C  d  b"));
    const auto json = nlohmann::json::parse(plan_json(plan));
    for (size_t i = 0; i < 3; ++i) {
        const auto& row = json.at("rows").at(i);
        const Candidate& candidate = plan.rows[i].candidate;
        EXPECT_EQ(row.at("context"), candidate.mesh.context);
        EXPECT_EQ(row.contains("cp_comm_type"), candidate.mesh.context > 1);
        EXPECT_EQ(row.at("links").contains("context"), candidate.mesh.context > 1);
    }
}

TEST(PlanContext, AddsUpGradientsBetweenContextRanksInFp32) {
    PlanOptions options = long_sequences();
    options.gpus = 4;
    options.context = {1};
    EXPECT_THAT(plan_text(make_plan(options), 1), Not(HasSubstr("train_gpt adds up gradients")));
    options.context = {4};
    EXPECT_THAT(plan_text(make_plan(options), 1), HasSubstr("train_gpt adds up gradients"));
}

TEST(PlanContext, IsRunWithItsSizeAndItsForm) {
    PlanOptions options = long_sequences();
    Candidate candidate{.schedule = "1f1b",
                        .vocab_mode = VocabMode::one_barrier,
                        .layers_per_stage = {4, 4},
                        .mesh = {.pipeline = 2, .context = 4},
                        .microbatches = 16};
    const std::string gathered = train_command(options, candidate);
    EXPECT_THAT(gathered, HasSubstr("mpirun -np 8 train_gpt "));
    EXPECT_THAT(gathered, HasSubstr(" --context-parallel-size 4 --schedule "));
    candidate.context_form = ContextForm::a2a;
    EXPECT_THAT(train_command(options, candidate),
                HasSubstr(" --context-parallel-size 4 --cp-comm-type a2a "));
    candidate.mesh = {.pipeline = 8};
    EXPECT_THAT(train_command(options, candidate), Not(HasSubstr("--cp-comm-type")));
    // 16 heads are 4 of a rank; gathering their keys would take more.
    options.context = {4};
    const Plan plan = make_plan(options);
    EXPECT_EQ(plan.rows.front().candidate.context_form, ContextForm::a2a);
}

}  // namespace
}  // namespace vocabpipe::testing
