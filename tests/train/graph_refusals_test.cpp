// SPDX-License-Identifier: Apache-2.0
// Functions that are no model, and steps that a model written as one function cannot have.
#include "vocabpipe/error.hpp"
#include "vocabpipe/model_graph.hpp"
#include "vocabpipe/policy_loss.hpp"
#include "vocabpipe/step_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::ThrowsMessage;

ModelConfig base_of_refused() {
    ModelConfig base;
    base.hidden_size = 8;
    base.num_attention_heads = 2;
    base.seq_length = 6;
    base.vocab_size = 19;
    return base;
}

/// A function that is no model, and what its refusal says.
struct NoModel {
    std::string why;
    ModelForward forward;
};

constexpr kernels::AttentionShape kTwoHeads{.heads = 2, .head_size = 4, .kv_heads = 2};

LayerOperator identity_operator() {
    return {.name = "mine",
            .columns = 8,
            .forward = [](Context&, const Microbatch&, const OperatorTensors&, Tensor) {},
            .backward_input = [](Context&, const Microbatch&, const OperatorTensors&, ConstTensor,
                                 std::span<const Tensor>) {}};
}

void expect_no_model(const NoModel& no_model) {
    EXPECT_THAT([&] { (void)model_of(no_model.forward, base_of_refused()); },
                ThrowsMessage<UsageError>("ModelConfig::model_forward: " + no_model.why));
}

TEST(NoGraphModel, HasOtherShapes) {
    const std::vector<NoModel> cases{
        {"layer 0: data_columns: 2 columns from column -1 on; there is no column before 0, and at "
         "least 1 is needed",
         [](ModelGraph& g) { (void)g.data_columns(-1, 2); }},
        {"layer 0: data_columns: 0 columns from column 3 on; there is no column before 0, and at "
         "least 1 is needed",
         [](ModelGraph& g) { (void)g.data_columns(3, 0); }},
        {"layer 0: reshape: 6 rows of 8 columns cannot be rows of 5",
         [](ModelGraph& g) { (void)g.reshape(g.embedded_tokens(), 5); }},
        {"layer 0: reshape: 6 rows of 8 columns cannot be rows of 0",
         [](ModelGraph& g) { (void)g.reshape(g.embedded_tokens(), 0); }},
        {"layer 0: row_range: 3 rows from row 4 on, of a value that has 6",
         [](ModelGraph& g) { (void)g.row_range(g.embedded_tokens(), 4, 3); }},
        {"layer 0: row_range: 3 rows from row -1 on, of a value that has 6",
         [](ModelGraph& g) { (void)g.row_range(g.embedded_tokens(), -1, 3); }},
        {"layer 0: row_range: 0 rows from row 2 on, of a value that has 6",
         [](ModelGraph& g) { (void)g.row_range(g.embedded_tokens(), 2, 0); }},
        {"layer 0: row_range: 9223372036854775807 rows from row 1 on, of a value that has 6",
         [](ModelGraph& g) {
             (void)g.row_range(g.embedded_tokens(), 1, std::numeric_limits<int64_t>::max());
         }},
        {"layer 0: column_range: 9 columns from column 0 on, of a value that has 8",
         [](ModelGraph& g) { (void)g.column_range(g.embedded_tokens(), 0, 9); }},
        {"layer 0: the second value of join_rows has 3 columns where 8 are needed",
         [](ModelGraph& g) { (void)g.join_rows(g.embedded_tokens(), g.data_columns(0, 3)); }},
        {"layer 0: join_columns: 1 values; from 2 to 8 are allowed",
         [](ModelGraph& g) { (void)g.join_columns({g.embedded_tokens()}); }},
        {"layer 0: join_columns: 9 values; from 2 to 8 are allowed",
         [](ModelGraph& g) {
             (void)g.join_columns(std::vector<LayerValue>(9, g.embedded_tokens()));
         }},
        {"layer 0: join_columns: values of 6 and 1 rows",
         [](ModelGraph& g) {
             const LayerValue x = g.embedded_tokens();
             (void)g.join_columns({x, g.mean_rows(x)});
         }},
        {"layer 0: the second term of a sum has 1 rows in a sequence where 6 are needed",
         [](ModelGraph& g) {
             const LayerValue x = g.embedded_tokens();
             (void)(x + g.mean_rows(x));
         }},
        {"layer 0: the second term of a sum has 3 columns where 8 are needed",
         [](ModelGraph& g) { (void)(g.embedded_tokens() + g.data_columns(0, 3)); }},
        {"layer 0: the input of gated() has 3 columns where 2 are needed",
         [](ModelGraph& g) { (void)g.gated(kernels::Activation::silu, g.data_columns(0, 3)); }}};
    for (const NoModel& no_model : cases) expect_no_model(no_model);
}

TEST(NoGraphModel, HasOtherHeads) {
    const std::vector<NoModel> cases{
        {"layer 0: attention: 3 heads of 4 columns with 2 heads of keys and values; the latter "
         "must divide the former",
         [](ModelGraph& g) {
             const LayerValue x = g.embedded_tokens();
             (void)g.attention(x, x, {.heads = 3, .head_size = 4, .kv_heads = 2});
         }},
        {"layer 0: attention: AttentionShape::value_head_size is -1; it must be at least 0 "
         "(head_size)",
         [](ModelGraph& g) {
             kernels::AttentionShape shape = kTwoHeads;
             shape.value_head_size = -1;
             (void)g.attention(g.embedded_tokens(), shape);
         }},
        {"layer 0: head_norm q: values of 2 columns beside keys of 4; norm q and k by themselves",
         [](ModelGraph& g) {
             kernels::AttentionShape shape = kTwoHeads;
             shape.value_head_size = 2;
             (void)g.head_norm("q", "k", g.embedded_tokens(), shape, {});
         }},
        {"layer 0: attention: cross-attention has no window",
         [](ModelGraph& g) {
             const LayerValue x = g.embedded_tokens();
             kernels::AttentionShape shape = kTwoHeads;
             shape.window = 2;
             (void)g.attention(x, x, shape);
         }},
        {"layer 0: attention: AttentionShape::window is 2 where causal is false; set it to 0",
         [](ModelGraph& g) {
             kernels::AttentionShape shape = kTwoHeads;
             shape.window = 2;
             shape.causal = false;
             (void)g.attention(g.embedded_tokens(), shape);
         }},
        {"layer 0: attention: AttentionShape::window is -1 and queries is 0; a window is at least "
         "0, and all tokens are queries (0)",
         [](ModelGraph& g) {
             kernels::AttentionShape shape = kTwoHeads;
             shape.window = -1;
             (void)g.attention(g.embedded_tokens(), shape);
         }},
        {"layer 0: q of attention has 3 columns where 8 are needed",
         [](ModelGraph& g) {
             (void)g.attention(g.data_columns(0, 3), g.embedded_tokens(), kTwoHeads);
         }},
        {"layer 0: kv of attention has 8 columns where 16 are needed",
         [](ModelGraph& g) {
             const LayerValue x = g.embedded_tokens();
             (void)g.attention(x, x, kTwoHeads);
         }},
        {"layer 0: the input of attention has 8 columns where 24 are needed",
         [](ModelGraph& g) { (void)g.attention(g.embedded_tokens(), kTwoHeads); }},
        {"layer 0: the input of head_norm q has 8 columns where 24 are needed",
         [](ModelGraph& g) { (void)g.head_norm("q", "k", g.embedded_tokens(), kTwoHeads); }},
        {"layer 0: rotary: the model has no rotary positions here; set "
         "ModelConfig::learned_positions = false, or its roped",
         [](ModelGraph& g) {
             (void)g.rotary(g.linear("qkv", g.embedded_tokens(), {.out = {24}}), kTwoHeads);
         }}};
    for (const NoModel& no_model : cases) expect_no_model(no_model);
}

TEST(NoGraphModel, HasMoreRotatedRowsThanTokens) {
    ModelConfig base = base_of_refused();
    base.learned_positions = false;
    EXPECT_THAT(
        [&] {
            (void)model_of(
                [](ModelGraph& g) {
                    const LayerValue rows = g.reshape(g.embedded_tokens(), 4);
                    (void)g.rotary(g.linear("qkv", rows, {.out = {24}}), kTwoHeads);
                },
                base);
        },
        ThrowsMessage<UsageError>(
            "ModelConfig::model_forward: layer 0: rotary: 12 rows in a sequence of 6 tokens; there "
            "are no positions for more rows than tokens"));
}

TEST(GraphModel, HasNoLayersWithoutValues) {
    const ModelConfig config = model_of(
        [](ModelGraph& g) {
            g.pipeline_stage();
            const LayerValue x = g.embedded_tokens();
            g.pipeline_stage();
            const LayerValue y = g.scale(x, 2);
            g.pipeline_stage();
            g.pipeline_stage();
            g.cross_entropy(y);
        },
        base_of_refused());
    EXPECT_EQ(config.num_layers, 2);
}

TEST(GraphModel, HasNoLastLayerWithoutValues) {
    const ModelConfig config = model_of(
        [](ModelGraph& g) {
            g.cross_entropy(g.embedded_tokens());
            g.pipeline_stage();
        },
        base_of_refused());
    EXPECT_EQ(config.num_layers, 1);
}

TEST(NoGraphModel, IsNoFunction) {
    EXPECT_THAT([] { (void)model_of(ModelForward(), base_of_refused()); },
                ThrowsMessage<UsageError>("model_of: the function is empty"));
}

TEST(NoGraphModel, HasOtherLossesAndOutputs) {
    const std::vector<NoModel> cases{
        {"layer 0: the model has no loss; call output(), cross_entropy(), squared_error() or "
         "loss()",
         [](ModelGraph& g) { (void)g.scale(g.embedded_tokens(), 2); }},
        {"layer 0: cross_entropy: its 4 rows must divide the sequence's 6 tokens, whose labels "
         "and weights they have",
         [](ModelGraph& g) { g.cross_entropy(g.row_range(g.embedded_tokens(), 0, 4)); }},
        {"layer 0: squared_error: its 12 rows must divide the sequence's 6 tokens, whose labels "
         "and weights they have",
         [](ModelGraph& g) { g.squared_error(g.reshape(g.embedded_tokens(), 4), 0); }},
        {"layer 0: loss: its 48 rows must divide the sequence's 6 tokens, whose labels and "
         "weights they have",
         [](ModelGraph& g) { g.loss(g.reshape(g.embedded_tokens(), 1)); }},
        {"layer 0: the value of loss() has 8 columns where 1 are needed",
         [](ModelGraph& g) { g.loss(g.embedded_tokens()); }},
        {"layer 0: the output has 3 columns where 8 are needed",
         [](ModelGraph& g) { g.output(g.data_columns(0, 3)); }},
        {"layer 0: the output has 1 rows in a sequence of 6 tokens; the output layer needs one "
         "for each",
         [](ModelGraph& g) { g.output(g.mean_rows(g.embedded_tokens())); }},
        {"layer 0: squared_error: targets from column -2 on; there is no column before 0",
         [](ModelGraph& g) { g.squared_error(g.data_columns(0, 3), -2); }},
        {"layer 0: output() is called twice; a model has one",
         [](ModelGraph& g) {
             const LayerValue x = g.embedded_tokens();
             g.output(x);
             g.output(x);
         }},
        {"layer 1: output() is called in layer 0, after which pipeline_stage() is; call it last",
         [](ModelGraph& g) {
             const LayerValue x = g.scale(g.embedded_tokens(), 2);
             g.output(x);
             g.pipeline_stage();
             g.cross_entropy(x);
         }}};
    for (const NoModel& no_model : cases) expect_no_model(no_model);
}

TEST(NoGraphModel, HasOtherValuesAndNames) {
    std::optional<LayerValue> kept;
    (void)model_of([&](ModelGraph& g) { g.output(g.scale(*(kept = g.embedded_tokens()), 2)); },
                   base_of_refused());
    const std::vector<NoModel> cases{
        {"layer 0: embedded_tokens() is called twice; keep the value",
         [](ModelGraph& g) { (void)(g.embedded_tokens() + g.embedded_tokens()); }},
        {"layer 1: embedded_tokens(): call it in layer 0, and keep the value",
         [](ModelGraph& g) {
             g.squared_error(g.data_columns(0, 2), 2);
             g.pipeline_stage();
             (void)g.embedded_tokens();
         }},
        {"layer 0: two parameters have the name transformer.h.shared.a.b.c.weight",
         [](ModelGraph& g) {
             const LayerValue x = g.embedded_tokens();
             g.share("a", [&] { (void)g.linear("b.c", x, 8); });
             g.share("a.b", [&] { (void)g.linear("c", x, 8); });
         }},
        {"layer 0: two parameters have the name transformer.h.0.w.weight",
         [](ModelGraph& g) {
             const LayerValue x = g.embedded_tokens();
             (void)g.linear("w", x, {.out = {4, 4}, .parts = {"q", "k"}});
             (void)g.linear("w", x, 8);
         }},
        {"layer 0: share: the group has no name", [](ModelGraph& g) { g.share("", [] {}); }},
        {"layer 0: share b: is inside of share a",
         [](ModelGraph& g) { g.share("a", [&] { g.share("b", [] {}); }); }},
        {"layer 0: the shared parameter transformer.h.shared.a.p.weight has 8 x 8 elements here "
         "and "
         "4 x 8 elsewhere",
         [](ModelGraph& g) {
             const LayerValue x = g.embedded_tokens();
             g.share("a", [&] { (void)g.linear("p", x, {.out = {4}}); });
             g.share("a", [&] { (void)g.linear("p", x, {.out = {8}}); });
         }},
        {"layer 0: two results have the name a",
         [](ModelGraph& g) { g.output(g.result("a", g.result("a", g.embedded_tokens()))); }},
        {"layer 0: only results depend on a, which no loss trains then; use it for a loss or the "
         "output",
         [](ModelGraph& g) {
             const LayerValue x = g.embedded_tokens();
             (void)g.result("vectors", g.linear("a", x, {.out = {8}}));
             g.output(x);
         }},
        {"layer 0: nothing reads the result of a, which has no gradient then; remove it",
         [](ModelGraph& g) {
             const LayerValue x = g.embedded_tokens();
             (void)g.linear("a", x, {.out = {8}});
             g.output(x);
         }},
        {"layer 0: nothing reads the result of embedded_tokens, which has no gradient then; "
         "remove it",
         [](ModelGraph& g) {
             (void)g.embedded_tokens();
             g.squared_error(g.data_columns(0, 2), 2);
         }},
        {"layer 0: two parameters have the name transformer.h.0.a.weight",
         [](ModelGraph& g) {
             (void)g.positions("a", g.linear("a", g.embedded_tokens(), {.out = {8}}));
         }},
        {"layer 0: linear a: 1 names in LinearValue::parts for 2 results",
         [](ModelGraph& g) {
             (void)g.linear("a", g.embedded_tokens(), {.out = {4, 4}, .parts = {"b"}});
         }},
        {"layer 0: a value of another model", [&](ModelGraph& g) { (void)g.mean_rows(*kept); }},
        {"layer 0: a value of another model", [&](ModelGraph& g) { g.output(*kept); }},
        {"layer 0: a value of another model", [&](ModelGraph& g) { g.cross_entropy(*kept); }},
        {"layer 0: a value of another model", [&](ModelGraph& g) { (void)g.keep(*kept); }},
        {"layer 0: a value of another model",
         [&](ModelGraph& g) { (void)(g.embedded_tokens() + *kept); }},
        {"layer 0: recompute: the layer's input is always there",
         [](ModelGraph& g) { (void)g.recompute(g.embedded_tokens()); }},
        {"layer 0: recompute: attention costs as much as in the forward; full recomputation makes "
         "it again",
         [](ModelGraph& g) {
             const LayerValue x = g.embedded_tokens();
             (void)g.recompute(g.attention(x, g.linear("kv", x, {.out = {16}}), kTwoHeads));
         }}};
    for (const NoModel& no_model : cases) expect_no_model(no_model);
}

TEST(NoGraphModel, HasOtherOperators) {
    const auto with = [](void (*change)(LayerOperator&)) {
        return [change](ModelGraph& g) {
            LayerOperator made = identity_operator();
            change(made);
            (void)g.apply(made, {g.embedded_tokens()});
        };
    };
    const std::vector<NoModel> cases{
        {"layer 0: mine: LayerOperator::columns is not set",
         with([](LayerOperator& made) { made.columns = 0; })},
        {"layer 0: mine: LayerOperator::forward and backward_input must both be set",
         with([](LayerOperator& made) { made.backward_input = {}; })},
        {"layer 0: mine: LayerOperator::rows is -3; it is at least 0",
         with([](LayerOperator& made) { made.rows = -3; })},
        {"layer 0: mine: 9 weights; at most 8 are allowed", with([](LayerOperator& made) {
             made.weights.assign(9, {.name = "w", .cols = 1});
             made.backward_weight = [](Context&, const Microbatch&, const OperatorTensors&,
                                       ConstTensor, std::span<const Tensor>, bool) {};
         })},
        {"layer 0: mine: 0 inputs; from 1 to 8 are allowed",
         [](ModelGraph& g) { (void)g.apply(identity_operator(), {}); }},
        {"layer 0: mine: 9 inputs; from 1 to 8 are allowed", [](ModelGraph& g) {
             (void)g.apply(identity_operator(), std::vector<LayerValue>(9, g.embedded_tokens()));
         }}};
    for (const NoModel& no_model : cases) expect_no_model(no_model);
}

// --- steps ---------------------------------------------------------------------------------------

/// A model with an output layer of three layers, and one with a loss of its own.
void three_layers(ModelGraph& g) {
    LayerValue x = g.embedded_tokens();
    for (int layer = 0; layer < 3; ++layer) {
        if (layer > 0) g.pipeline_stage();
        x = g.linear("a", x, {.out = {8}});
    }
    g.output(x);
}
void own_loss_alone(ModelGraph& g) {
    g.cross_entropy(g.linear("a", g.embedded_tokens(), {.out = {8}}));
}

TEST(GraphModel, RefusesStepsThatItCannotHave) {
    const ModelConfig config = model_of(three_layers, base_of_refused());
    const ModelConfig own_loss = model_of(own_loss_alone, base_of_refused());
    const auto refused = [](const std::string& why, const ModelConfig& model,
                            const StepCluster& cluster = {}, const StepWork& work = {},
                            const StepSchedule& schedule = {}) {
        EXPECT_THAT([&] { (void)plan_step(model, cluster, schedule, work); },
                    ThrowsMessage<UsageError>(why));
    };
    const std::string its = ": a model of your own (ModelConfig::model_forward) ";
    refused("--tensor-model-parallel-size 2" + its + "is not cut among ranks; use 1", config,
            {.tensor = 2});
    refused("--context-parallel-size 2" + its + "is not cut among ranks; use 1", config,
            {.context = 2});
    refused("--expert-model-parallel-size 2" + its + "is not cut among ranks; use 1", config,
            {.expert = 2});
    ModelConfig changed = config;
    changed.moe.experts = 4;
    refused("--num-experts 4" + its + "has no experts of the library's; use 0", changed);
    changed = config;
    changed.mtp_num_layers = 1;
    refused("--mtp-num-layers 1" + its + "has no depths; use 0", changed);
    changed = config;
    changed.lora.rank = 4;
    refused("--lora-rank 4" + its + "has no adapters; use 0", changed);
    refused("ModelPartition::frozen" + its + "trains all its parameters", config, {},
            {.frozen = std::vector<bool>(7)});
    refused("StepWork::shorter_lengths" + its + "has sequences of one length", config, {},
            {.shorter_lengths = {3}});
    refused("StepWork::loss" + its + "has its own loss", own_loss, {},
            {.loss = std::make_shared<PolicyLoss>()});
    refused("StepWork::records" + its + "has its own loss, and no records of tokens", own_loss, {},
            {.evaluation = true, .records = {.columns = {TokenRecord::entropy}}});
    refused(
        "ModelConfig::model_forward: 3 layers for a schedule of 4 stages, which need one each; "
        "call pipeline_stage() at least 3 times, or use fewer stages",
        config, {.ranks = 4});
    for (const std::vector<int>& layers : {std::vector{3, 0}, std::vector{0, 3}}) {
        refused("layers_per_stage: 0" + its + "has at least one layer in every stage", config,
                {.ranks = 2}, {}, {.layers_per_stage = layers});
    }
    refused("the stages hold 4 layers, but --num-layers is 3", config, {.ranks = 2}, {},
            {.layers_per_stage = {2, 2}});
    refused("layers_per_stage are set for 1 stages, but the schedule has 2; both must be equal",
            config, {.ranks = 2}, {}, {.layers_per_stage = {3}});
}

TEST(GraphModel, RefusesConfigurationsThatSayOtherwise) {
    const ModelConfig right = model_of(three_layers, base_of_refused());
    const auto refused = [&](void (*change)(ModelConfig&), const std::string& layers) {
        ModelConfig config = right;
        change(config);
        EXPECT_THAT([&] { (void)plan_step(config, StepCluster(), StepSchedule(), StepWork()); },
                    ThrowsMessage<UsageError>(
                        "ModelConfig::model_forward: has 3 layers where num_layers is " + layers +
                        ", or reads tokens or makes an output where embeds_tokens, "
                        "has_output_layer or tied say otherwise; make it with model_of()"));
    };
    refused([](ModelConfig& config) { config.num_layers = 2; }, "2");
    refused([](ModelConfig& config) { config.embeds_tokens = false; }, "3");
    refused([](ModelConfig& config) { config.has_output_layer = false; }, "3");
}

/// A pass counts its operands in a byte.
TEST(NoGraphModel, SharesAWeightTooOften) {
    const ModelConfig model = model_of(
        [](ModelGraph& g) {
            LayerValue x = g.embedded_tokens();
            for (int i = 0; i < 256; ++i) g.share("s", [&] { x = x + g.linear("p", x, 8); });
            g.output(x);
        },
        base_of_refused());
    EXPECT_THAT(
        [&] { (void)plan_step(model, StepCluster{}, StepSchedule{}, StepWork{}); },
        ThrowsMessage<UsageError>("lowering: a shared weight has 256 bytes and 256 uses; it "
                                  "needs bytes, and from 2 to 200 uses"));
}

}  // namespace
}  // namespace vocabpipe::testing
