// SPDX-License-Identifier: Apache-2.0
// Plans over several axes: which meshes there are, what links their ranks use, what sharing costs
// and saves.
#include "src/model/blocks/model_layers.hpp"
#include "src/plan/candidates.hpp"
#include "src/plan/device_links.hpp"
#include "src/plan/layer_products.hpp"
#include "src/plan/step_model.hpp"
#include "tests/plan/plan_cases.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>
#include <string>

namespace vocabpipe::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PlanOptions one_schedule() {
    PlanOptions options = small_plan();
    options.schedules = {"1f1b"};
    options.vocab_modes = {VocabMode::one_barrier};
    options.sensitivity_rows = 0;
    return options;
}

/// Experts that matter, small enough for milliseconds.
PlanOptions experts() {
    PlanOptions options = one_schedule();
    options.model = {.name = "experts",
                     .config = {.num_layers = 4,
                                .hidden_size = 1024,
                                .ffn_hidden_size = 2048,
                                .num_attention_heads = 16,
                                .num_query_groups = 8,
                                .vocab_size = 32000}};
    set_family(options.model.config, "mixtral");
    options.model.config.moe.experts = 8;
    options.model.config.tied = false;
    return options;
}

PlanRow only_row(const PlanOptions& options) {
    const Plan plan = make_plan(options);
    EXPECT_EQ(plan.rows.size(), 1U);
    return plan.rows.front();
}

TEST(PlanMesh, AxesThatAreNotListedTakeWhatTheOthersLeave) {
    PlanOptions options = one_schedule();
    options.gpus = 8;
    options.tensor = {1, 2, 4};
    EXPECT_THAT(meshes(options), ElementsAre("p=8", "p=4 t=2", "p=2 t=4"));
    options.data = {1, 2};
    EXPECT_THAT(meshes(options),
                ElementsAre("p=8", "p=4 d=2", "p=4 t=2", "p=2 t=2 d=2", "p=2 t=4", "p=1 t=4 d=2"));
    options.data.clear();
    options.pipeline = {2, 4};
    EXPECT_THAT(meshes(options),
                ElementsAre("p=2 d=4", "p=4 d=2", "p=2 t=2 d=2", "p=4 t=2", "p=2 t=4"));
    options.data = {2};
    EXPECT_THAT(meshes(options), ElementsAre("p=4 d=2", "p=2 t=2 d=2"));
    options.data = {3};
    EXPECT_THROW((void)list_candidates(options), UsageError);
}

TEST(PlanMesh, LeavesOutWhatTheModelOrTheBatchRulesOut) {
    PlanOptions options = experts();
    options.gpus = 16;
    options.tensor = {3, 16};
    EXPECT_THAT(reasons(options), ElementsAre("t=16 does not divide the 8 key/value heads"));
    options.tensor = {4};
    options.expert = {2, 3, 8};
    EXPECT_THAT(reasons(options),
                ElementsAre("e=3 does not divide the 8 experts", "e=8 does not divide t d"));
    options.data = {1, 2, 4};
    options.global_batch_size = 18;
    EXPECT_THAT(reasons(options),
                Contains("--global-batch-size 18 does not divide among replicas and microbatches"));
    options = one_schedule();
    options.tensor = {2};
    options.expert = {2};
    EXPECT_THAT(reasons(options), ElementsAre("the model has no experts: e must be 1"));
    options.expert = {1};
    options.seq_length = 1023;
    EXPECT_THAT(reasons(options),
                ElementsAre("t=2 does not divide the 1023 tokens of a microbatch"));
    options = one_schedule();
    options.model.config.layer_forward = [](LayerGraph&, LayerValue x) { return x; };
    options.tensor = {2};
    EXPECT_THAT(reasons(options), ElementsAre("layers of your own are not cut: t must be 1"));
    options.tensor = {1};
    options.context = {2};
    EXPECT_THAT(reasons(options),
                ElementsAre("layers of your own need whole sequences: C must be 1"));
}

TEST(PlanMesh, OfAModelOfOneFunctionIsRefused) {
    PlanOptions options = one_schedule();
    options.model.config.model_forward = [](ModelGraph&) {};
    EXPECT_THAT([&] { static_cast<void>(make_plan(options)); },
                ThrowsMessage<UsageError>(HasSubstr("make_plan: plans chains of layers; of a model "
                                                    "of your own (ModelConfig::model_forward)")));
}

TEST(PlanMesh, ReportsCountWhatWasLeftOut) {
    PlanOptions options = one_schedule();
    options.tensor = {1, 2};
    options.micro_batch_sizes = {1, 3};
    const Plan plan = make_plan(options);
    const std::string text = plan_text(plan, 9);
    EXPECT_THAT(text, HasSubstr("skipped 2: p=2 t=2, p=4: --global-batch-size "));
    EXPECT_THAT(text, HasSubstr("v  p  t  d  b   m  step ms"));
    EXPECT_THAT(text, HasSubstr("links    of the best row: "));
}

// Eight GPUs per node.
TEST(PlanMesh, AnAxisUsesTheNetworkWhereItsGroupsDoNotFitIntoANode) {
    const DeviceLinks links(load_device("h100"));
    const Mesh inside{.pipeline = 2, .data = 2, .tensor = 4};
    EXPECT_FALSE(links.spans_nodes(inside, Axis::tensor));
    EXPECT_FALSE(links.spans_nodes(inside, Axis::data));
    EXPECT_TRUE(links.spans_nodes(inside, Axis::pipeline));
    const Mesh wide{.pipeline = 2, .data = 2, .tensor = 8};
    EXPECT_FALSE(links.spans_nodes(wide, Axis::tensor));
    EXPECT_TRUE(links.spans_nodes(wide, Axis::data));
    EXPECT_TRUE(links.spans_nodes({.pipeline = 1, .tensor = 16}, Axis::tensor));
    EXPECT_TRUE(links.spans_nodes({.pipeline = 4, .tensor = 3}, Axis::tensor)) << "6, 7 | 8";
    EXPECT_FALSE(links.spans_nodes({.pipeline = 4, .tensor = 2}, Axis::pipeline)) << "one node";
    const Mesh experts{.pipeline = 1, .data = 16, .expert = 8};
    EXPECT_FALSE(links.spans_nodes(experts, Axis::expert));
    EXPECT_TRUE(links.spans_nodes(experts, Axis::expert_data));
}

TEST(PlanMesh, AMeshThatFillsOneNodeUsesNoNetwork) {
    const DeviceLinks links(load_device("h100"));
    for (const Axis axis : kAxes) {
        EXPECT_FALSE(links.spans_nodes({.pipeline = 4, .tensor = 2}, axis)) << to_string(axis);
        EXPECT_FALSE(links.spans_nodes({.pipeline = 2, .data = 4, .expert = 4}, axis))
            << to_string(axis);
    }
    // One GPU more, and what every GPU takes part in crosses to the other node.
    for (const Axis axis : {Axis::model, Axis::world, Axis::pipeline}) {
        EXPECT_TRUE(links.spans_nodes({.pipeline = 9}, axis)) << to_string(axis);
    }
}

TEST(PlanMesh, TensorRanksShareMemoryAndPayForWhatTheyExchange) {
    PlanOptions options = one_schedule();
    options.trainer.kernels = KernelYear::y2022;
    options.device.layer_launch_us.value = 0;  // the model is small
    options.gpus = 1;
    const PlanRow alone = only_row(options);
    options.gpus = 2;
    options.tensor = {2};
    const PlanRow two = only_row(options);
    const auto share = [&](int64_t PlannedMemory::*bytes) {
        return static_cast<double>(two.worst.*bytes) / static_cast<double>(alone.worst.*bytes);
    };
    EXPECT_NEAR(share(&PlannedMemory::weights), 0.5, 0.005);
    EXPECT_NEAR(share(&PlannedMemory::gradients), 0.5, 0.005);
    EXPECT_NEAR(share(&PlannedMemory::optimizer), 0.5, 0.001);
    EXPECT_NEAR(share(&PlannedMemory::activations), 0.5, 0.1);
    const double time = static_cast<double>(two.step_ns) / static_cast<double>(alone.step_ns);
    EXPECT_GT(time, 0.5);
    EXPECT_LT(time, 0.8);
    options.device.gpus_per_node.value = 1;  // the same through the network
    EXPECT_GT(only_row(options).step_ns, 1.2 * static_cast<double>(two.step_ns));
}

TEST(PlanMesh, ReplicasShareTheOptimizerAndExchangeGradients) {
    PlanOptions options = one_schedule();
    options.device.gpus_per_node.value = 1;
    options.gpus = 4;
    options.data = {2};
    const PlanRow replicas = only_row(options);
    options.gpus = 2;
    options.data = {1};
    options.global_batch_size = 8;
    const PlanRow alone = only_row(options);
    EXPECT_EQ(replicas.candidate.microbatches, alone.candidate.microbatches);
    EXPECT_EQ(replicas.worst.weights, alone.worst.weights);
    EXPECT_NEAR(static_cast<double>(replicas.worst.optimizer),
                0.5 * static_cast<double>(alone.worst.optimizer), 100);
    EXPECT_GT(replicas.step_ns, alone.step_ns);
    // Each rank sends and receives half of the gradients of its fp32 and half of its weights.
    const double bytes = 0.5 * static_cast<double>(alone.worst.gradients + alone.worst.weights);
    const double rate =
        options.device.network_gb_per_s.value * options.device.network_efficiency.value;
    EXPECT_LT(static_cast<double>(replicas.step_ns - alone.step_ns), 1.1 * bytes / rate);
}

TEST(PlanMesh, PassTimesAndSimulationAgreeOnEveryMesh) {
    PlanOptions options = experts();
    options.gpus = 8;
    options.pipeline = {1, 2, 4};
    options.tensor = {1, 2};
    options.data = {1, 2, 4};
    options.expert = {1, 2, 4};
    options.global_batch_size = 32;
    std::map<std::string, PlanRow> rows;
    options.evaluation = Evaluation::simulation;
    for (const PlanRow& row : make_plan(options).rows) rows[to_string(row.candidate)] = row;
    EXPECT_GE(rows.size(), 9U);
    options.evaluation = Evaluation::pass_times;
    for (const PlanRow& row : make_plan(options).rows) {
        const PlanRow& simulated = rows.at(to_string(row.candidate));
        EXPECT_NEAR(static_cast<double>(row.step_ns) / static_cast<double>(simulated.step_ns), 1,
                    0.1)
            << to_string(row.candidate);
        EXPECT_NEAR(
            static_cast<double>(row.worst.total()) / static_cast<double>(simulated.worst.total()),
            1, 0.05)
            << to_string(row.candidate);
    }
}

TEST(PlanExperts, ExpertRanksHoldTheirExpertsAlone) {
    PlanOptions options = experts();
    options.gpus = 2;
    options.data = {2};
    const PlanRow all = only_row(options);
    options.expert = {2};
    const PlanRow shared = only_row(options);
    const int64_t half = 4 * 4 * 3 * 1024 * 2048LL;  // elements of four experts in four layers
    EXPECT_EQ(all.worst.weights - shared.worst.weights, 2 * half);
    EXPECT_EQ(all.worst.gradients - shared.worst.gradients, 4 * half);
    EXPECT_NEAR(static_cast<double>(shared.worst.optimizer),
                static_cast<double>(all.worst.optimizer), 1000)
        << "replicas shared these moments already";
    EXPECT_GT(shared.worst.activations, all.worst.activations) << "the bound on rows";
}

TEST(PlanExperts, PartsOfExpertsTakeAsMuchMemoryAsFewerExperts) {
    PlanOptions options = experts();
    options.gpus = 4;
    options.data = {4};
    options.expert = {4};
    const PlanRow whole = only_row(options);
    options.expert = {2};
    options.expert_tensor = {2};
    const PlanRow parts = only_row(options);
    EXPECT_EQ(
        to_string(parts.candidate),
        to_string(whole.candidate).replace(to_string(whole.candidate).find("e=4"), 3, "e=2 x=2"));
    EXPECT_EQ(parts.worst.weights, whole.worst.weights);
    EXPECT_EQ(parts.worst.optimizer, whole.worst.optimizer);
    EXPECT_GT(parts.worst.activations, whole.worst.activations) << "twice the rows of h";
    EXPECT_GT(parts.step_ns, whole.step_ns) << "and twice the copies";
}

TEST(PlanExperts, ReportsNameBothNumbersOfRanks) {
    PlanOptions options = experts();
    options.gpus = 16;
    options.data = {16};
    options.expert = {8};
    options.expert_tensor = {1, 2};
    options.global_batch_size = 16;
    const Plan plan = make_plan(options);
    EXPECT_THAT(plan_text(plan, 9), HasSubstr("v  p  t   d  e  x "));
    const auto json = nlohmann::json::parse(plan_json(plan));
    for (const auto& row : json["rows"]) EXPECT_EQ(row["expert"], 8);
    EXPECT_NE(json["rows"][0]["expert_tensor"], json["rows"][1]["expert_tensor"]);
}

// Eight experts, two of them for each token.
TEST(PlanExperts, ImbalanceCostsTimeUpToAllTokensOnOneRank) {
    const MoeConfig moe{.experts = 8, .top_k = 2};
    EXPECT_EQ(worst_imbalance(moe, 1), 1);
    EXPECT_EQ(worst_imbalance(moe, 4), 4);
    EXPECT_EQ(worst_imbalance(moe, 8), 4) << "a rank's only expert gets half of the rows";
    EXPECT_EQ(worst_imbalance({.experts = 0}, 4), 1) << "no rows to be uneven";
    const Candidate four{.mesh = {.data = 4, .expert = 4}};
    EXPECT_EQ(expert_load(moe, four, 1).waves(), 1);
    EXPECT_EQ(expert_load(moe, four, 1.5).waves(), 2);
    EXPECT_EQ(expert_load(moe, four, 100).rows, 4);
    EXPECT_EQ(expert_load(moe, four, 100).waves(), 4);

    PlanOptions options = experts();
    options.data = {4};
    options.expert = {4};
    options.sensitivity_rows = 1;
    const Plan plan = make_plan(options);
    ASSERT_EQ(plan.imbalance.size(), 2U);
    EXPECT_EQ(plan.imbalance[0].factor, 1.5);
    EXPECT_EQ(plan.imbalance[1].factor, 4);
    EXPECT_GT(plan.imbalance[0].step_ns, plan.rows.front().step_ns);
    EXPECT_GT(plan.imbalance[1].step_ns, plan.imbalance[0].step_ns);
    EXPECT_THAT(plan_text(plan, 1), HasSubstr("4.00 (all tokens to one rank)"));
    options.moe_imbalance = 1.5;
    EXPECT_EQ(make_plan(options).rows.front().step_ns, plan.imbalance[0].step_ns);
    options.expert = {1};
    EXPECT_TRUE(make_plan(options).imbalance.empty());
    options.expert_tensor = {4};
    EXPECT_TRUE(make_plan(options).imbalance.empty()) << "each rank has a part of all experts";
}

// Each rank computes its own tokens' rows or as many of others: what experts cost more is exchange,
// and what they cost less are larger products.
TEST(PlanExperts, ProductsOfSharedExpertsAreAsMuchWork) {
    PlanOptions options = experts();
    options.device.product_startup_terms.value = options.device.product_overhead_us.value = 0;
    options.device.link_gb_per_s.value = 1e9;
    options.device.link_latency_us.value = 0;
    const BlockWork layer = ModelLayers(options.model.config)[0].block.work(1024);
    const Mesh experts_shared{.data = 4, .expert = 4};
    const LayerProducts alone = layer_products(
        layer.products, DeviceRates(options.device, options.trainer), {.data = 4}, 1024, {});
    const LayerProducts shared =
        layer_products(layer.products, DeviceRates(options.device, options.trainer), experts_shared,
                       1024, expert_load(options.model.config.moe, {.mesh = experts_shared}, 1));
    EXPECT_NEAR(shared.forward, alone.forward, 0.01 * alone.forward);
    EXPECT_NEAR(shared.backward, alone.backward, 0.01 * alone.backward);
}

}  // namespace
}  // namespace vocabpipe::testing
