// SPDX-License-Identifier: Apache-2.0
// Sizes, FLOPs and bytes of models against published counts and the formulas of the documents.
#include "vocabpipe/transformer_shape.hpp"

#include "tests/plan/plan_cases.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <string>

namespace vocabpipe::testing {
namespace {

TEST(TransformerShape, BuiltInModelsHaveTheirPublishedParameterCounts) {
    // As their model cards and weight files state; GPT-3's "175.0 B" (table 2.1) is rounded from a
    // count that leaves something out, so it gets half a percent.
    EXPECT_EQ(load_model("llama-3-8b").parameters(), 8'030'261'248);
    EXPECT_EQ(load_model("llama-3-70b").parameters(), 70'553'706'496);
    EXPECT_EQ(load_model("llama-3-405b").parameters(), 405'853'388'800);
    EXPECT_EQ(load_model("gemma-2-9b").parameters(), 9'241'705'984);
    EXPECT_EQ(load_model("qwen-2.5-7b").parameters(), 7'615'616'512);
    EXPECT_EQ(load_model("llama-3.2-1b").parameters(), 1'235'814'400);
    EXPECT_EQ(load_model("qwen-3-8b").parameters(), 8'190'735'360);
    EXPECT_EQ(load_model("gemma-3-1b").parameters(), 999'885'952);
    EXPECT_EQ(load_model("phi-4").parameters(), 14'659'507'200);
    EXPECT_EQ(load_model("mixtral-8x7b").parameters(), 46'702'792'704);
    EXPECT_EQ(load_model("qwen3-30b-a3b").parameters(), 30'532'122'624);
    EXPECT_NEAR(static_cast<double>(load_model("gpt3-175b").parameters()), 175.0e9, 0.5e9);
}

TEST(TransformerShape, OfExpertsTheOnesOfATokenCountAsFlopsAndAllAsMemory) {
    const TransformerShape mixtral = load_model("mixtral-8x7b");
    // "12.9 B active" and "3.3 B activated" in their model cards.
    EXPECT_NEAR(static_cast<double>(mixtral.active_parameters()), 12.9e9, 0.05e9);
    EXPECT_NEAR(static_cast<double>(load_model("qwen3-30b-a3b").active_parameters()), 3.3e9,
                0.06e9);
    const double h = 4096, f = 14336, attention = h * (4096 + 2 * 1024) + 4096 * h;
    EXPECT_DOUBLE_EQ(mixtral.dense_flops(), 2 * (attention + h * 8 + 2 * 3 * h * f));
    const TransformerShape::LayerParameters layer = mixtral.layer_parameters();
    EXPECT_EQ(layer.cut, attention);
    EXPECT_EQ(layer.repeated, h * 8 + 2 * h);
    EXPECT_EQ(layer.experts, 8 * 3 * h * f);
    // Of k rows: copies of h, and 3 f; logits, log Z, and four numbers per choice.
    EXPECT_EQ(mixtral.saved_bytes(),
              2 * (4 * 4096 + 6144 + 4096 + 2 * (4096 + 3 * 14336)) + 4 * (2 + 32 + 8 + 1 + 8));
    EXPECT_EQ(mixtral.recomputed_bytes(Recompute::selective),
              2 * (2 * 4096 + 2 * (4096 + 14336)) + 4 * 2);
    EXPECT_EQ(mixtral.for_weight_bytes(), 2 * (4 * 4096 + 6144 + 8 + 2 * (4096 + 2 * 14336)));
}

TEST(TransformerShape, LayersWithAndWithoutExpertsGiveTheMean) {
    TransformerShape shape = load_model("mixtral-8x7b");
    const int64_t all = shape.parameters();
    shape.moe.layers = 0;
    const int64_t none = shape.parameters();
    shape.moe.layers = 8;
    EXPECT_EQ(shape.parameters(), none + (all - none) / 4);
    shape.moe.shared_ffn_hidden_size = 100;
    shape.moe.shared_gate = true;
    shape.moe.correction_bias = true;
    EXPECT_EQ(shape.parameters(), none + (all - none) / 4 + 8 * (3 * 4096 * 100 + 4096 + 8));
    EXPECT_EQ(shape.active_parameters(), shape.parameters() - 8 * 6 * 3 * 4096 * 14336LL);
}

TEST(TransformerShape, FlopsOfGpt2AreThoseOfTheDefinitionOfMfu) {
    const TransformerShape gpt2{.name = "gpt2",
                                .num_layers = 12,
                                .hidden_size = 768,
                                .ffn_hidden_size = 3072,
                                .num_attention_heads = 12,
                                .num_key_value_heads = 12,
                                .head_size = 64,
                                .vocab_size = 50257,
                                .learned_positions = 1024,
                                .layer_norm = true,
                                .qkv_bias = true,
                                .attention_output_bias = true,
                                .mlp_bias = true,
                                .tied = true};
    // 797.8 M per token at s = 1024, forward and backward, 29 % of them in the output layer.
    EXPECT_NEAR(3 * gpt2.forward_flops(1024), 797.8e6, 0.05e6);
    EXPECT_NEAR(2.0 * 768 * 50257 / gpt2.forward_flops(1024), 0.29, 0.005);
    EXPECT_EQ(gpt2.parameters(), 124'439'808);
}

TEST(TransformerShape, GroupedQueriesShrinkOnlyTheKeyAndValueProjections) {
    TransformerShape shape = small_gpt();
    const double all = shape.dense_flops();
    shape.num_key_value_heads = 4;
    EXPECT_EQ(all - shape.dense_flops(), 2.0 * 1024 * 2 * 12 * 64);
    EXPECT_EQ(shape.attention_flops(512), small_gpt().attention_flops(512));
}

TEST(TransformerShape, AWindowCutsAttentionOfEverySecondLayer) {
    TransformerShape shape = small_gpt();
    const double all = shape.attention_flops(8192);
    shape.sliding_window = 4096;
    shape.windowed_layers = shape.num_layers / 2;
    // Windowed layers attend to w - w^2 / 2s = 3072 tokens in the mean instead of 4096.
    EXPECT_DOUBLE_EQ(shape.attention_flops(8192) / all, (1 + 0.75) / 2);
    EXPECT_DOUBLE_EQ(shape.attention_flops(4096), small_gpt().attention_flops(4096));
}

TEST(TransformerShape, AWindowLongerThanTheSequenceCutsNothing) {
    TransformerShape shape = small_gpt();
    shape.sliding_window = 4096;
    shape.windowed_layers = shape.num_layers;
    EXPECT_EQ(shape.attention_flops(1024), small_gpt().attention_flops(1024));
}

/// What a shared expert of 100 columns adds to a layer of Mixtral.
struct AddedByShared {
    double forward, backward, recompute;
    int64_t saved, recomputed, for_weight;
    AddedByShared(bool gate, int layers) {
        TransformerShape without = load_model("mixtral-8x7b");
        without.moe.layers = layers;
        TransformerShape with = without;
        with.moe.shared_ffn_hidden_size = 100;
        with.moe.shared_gate = gate;
        forward = with.elementwise_forward() - without.elementwise_forward();
        backward = with.elementwise_backward() - without.elementwise_backward();
        recompute = with.elementwise_recompute() - without.elementwise_recompute();
        saved = with.saved_bytes() - without.saved_bytes();
        recomputed = with.recomputed_bytes(Recompute::selective) -
                     without.recomputed_bytes(Recompute::selective);
        for_weight = with.for_weight_bytes() - without.for_weight_bytes();
    }
};

// Its activation reads gate and up and writes their product; backward it reads them and dy, and
// writes two gradients.
TEST(TransformerShape, ASharedExpertIsAnMlpOfAllTokens) {
    const AddedByShared shared(false, 32);
    EXPECT_EQ(shared.forward, 3 * 100);
    EXPECT_EQ(shared.backward, 5 * 100);
    EXPECT_EQ(shared.recompute, 3 * 100);
    EXPECT_EQ(shared.saved, 2 * 3 * 100);
    EXPECT_EQ(shared.recomputed, 2 * 100);
    // Gradients of gate and up, and that of x through them.
    EXPECT_EQ(shared.for_weight, 2 * (2 * 100 + 4096));
    const AddedByShared quarter(false, 8);
    EXPECT_EQ(quarter.forward, 3 * 100 / 4);
    EXPECT_EQ(quarter.backward, 5 * 100 / 4);
}

// Rows of h are copied (2) and added up (1), and the copy is kept; its router has one logit, its
// log Z and four numbers of the choice.
TEST(TransformerShape, ASharedExpertWithAGateIsAMixtureOfOne) {
    const AddedByShared shared(true, 32);
    EXPECT_EQ(shared.forward, 3 * 4096 + 3 * 100);
    EXPECT_EQ(shared.backward, 5 * 4096 + 9 * 100);
    EXPECT_EQ(shared.recompute, 2 * 4096 + 3 * 100);
    EXPECT_EQ(shared.saved, 2 * (4096 + 3 * 100) + 4 * (1 + 1 + 4));
    EXPECT_EQ(shared.recomputed, 2 * (4096 + 100));
    EXPECT_EQ(shared.for_weight, 2 * (1 + 4096 + 2 * 100 + 4096));
}

TEST(TransformerShape, SavedBytesOfAGptAreThoseOfTheMemoryDocument) {
    // 8 h + 2 f elements of 2 bytes; mean and deviation of two norms and a row statistic per head.
    const TransformerShape gpt = small_gpt();
    EXPECT_EQ(gpt.saved_bytes(), 2 * (8 * 1024 + 2 * 4096) + 4 * (2 * 2 + 16));
}

TEST(TransformerShape, RecomputesNormsAndActivationsOrAllThatIsSaved) {
    const TransformerShape gpt = small_gpt();
    EXPECT_EQ(gpt.recomputed_bytes(Recompute::none), 0);
    EXPECT_EQ(gpt.recomputed_bytes(Recompute::full), gpt.saved_bytes());
    // Outputs of two norms and of the activation; mean and deviation of the norms' rows.
    EXPECT_EQ(gpt.recomputed_bytes(Recompute::selective), 2 * (2 * 1024 + 4096) + 4 * 2 * 2);
    EXPECT_EQ(gpt.elementwise_recompute(), 2 * 2 * 1024 + 2 * 4096);
    // Four RMSNorms, two of which make what goes into the residual stream; a gate.
    const TransformerShape gemma = load_model("gemma-2-9b");
    EXPECT_EQ(gemma.recomputed_bytes(Recompute::selective),
              2 * (2 * gemma.hidden_size + gemma.ffn_hidden_size) + 4 * 2);
    EXPECT_EQ(gemma.elementwise_recompute(),
              static_cast<double>(4 * gemma.hidden_size + 3 * gemma.ffn_hidden_size));
}

TEST(TransformerShape, ImpossibleSizesAreRefusedByName) {
    TransformerShape shape = small_gpt();
    shape.hidden_size = 0;
    EXPECT_THROW(shape.check(), UsageError);
    shape = small_gpt();
    shape.num_key_value_heads = 17;
    EXPECT_THROW(shape.check(), UsageError);
}

TEST(TransformerShape, ImpossibleSizesOfExpertsAreRefusedWhereALayerHasThem) {
    const TransformerShape mixtral = load_model("mixtral-8x7b");
    EXPECT_NO_THROW(mixtral.check());
    const auto expect_refused = [&](auto ExpertsShape::*size, int value, const std::string& why) {
        TransformerShape shape = mixtral;
        shape.moe.*size = value;
        try {
            shape.check();
            ADD_FAILURE() << why;
        } catch (const UsageError& error) {
            EXPECT_EQ(error.what(), "model mixtral-8x7b: " + why);
        }
    };
    using E = ExpertsShape;
    expect_refused(&E::experts, 5000, "experts 5000: must be from 1 to 4096");
    expect_refused(&E::per_token, 9, "experts per token 9: must be from 1 to 8");
    expect_refused(&E::ffn_hidden_size, 0,
                   "feed-forward size of an expert 0: must be from 1 to 16777216");
    expect_refused(&E::shared_ffn_hidden_size, -1,
                   "feed-forward size of the shared expert -1: must be from 0 to 16777216");
    expect_refused(&E::layers, 33, "layers with experts 33: must be from 0 to 32");
    TransformerShape none = mixtral;
    none.moe = {.per_token = 9};
    EXPECT_NO_THROW(none.check()) << "no layer has any";
}

}  // namespace
}  // namespace vocabpipe::testing
