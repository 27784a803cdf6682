// SPDX-License-Identifier: Apache-2.0
// What the operators of a layer move, and what its passes leave for each other, by hand.
#include "src/model/blocks/model_layers.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace vocabpipe::testing {
namespace {

// h = 8 in two heads, f = 32.
ModelConfig narrow() {
    ModelConfig config;
    config.num_layers = 2;
    config.hidden_size = 8;
    config.ffn_hidden_size = 32;
    config.num_attention_heads = 2;
    return config;
}
ModelConfig narrow_experts() {
    ModelConfig config = narrow();
    config.gated = true;
    config.moe = {.experts = 4, .top_k = 2, .ffn_hidden_size = 16};
    return config;
}

MovedElements moved(const ModelConfig& config, int layer = 0) {
    return ModelLayers(config)[layer].block.work(64).moved;
}
using Directions = std::pair<int64_t, int64_t>;  ///< forward, backward
Directions more(const ModelConfig& config, const ModelConfig& than) {
    const MovedElements a = moved(config), b = moved(than);
    return {a.forward - b.forward, a.backward - b.backward};
}

TEST(BlockWork, ElementsThatMoveAreThoseOfEachOperator) {
    const ModelConfig plain = narrow();
    // Two norms of 2 h, two additions of 3 h, an activation of 2 f; backward 3 h, 3 h and 3 f.
    EXPECT_EQ(moved(plain).forward, 2 * 2 * 8 + 2 * 3 * 8 + 2 * 32);
    EXPECT_EQ(moved(plain).backward, 2 * 3 * 8 + 2 * 3 * 8 + 3 * 32);
    EXPECT_EQ(moved(plain).recompute, 2 * 2 * 8 + 2 * 32);
    ModelConfig other = plain;
    other.post_norms = true;
    EXPECT_EQ(more(other, plain), Directions(2 * 2 * 8, 2 * 3 * 8));
    EXPECT_EQ(moved(other).recompute, moved(plain).recompute);
    other = plain;
    other.gated = true;
    EXPECT_EQ(more(other, plain), Directions(32, 2 * 32));
    EXPECT_EQ(moved(other).recompute, 2 * 2 * 8 + 3 * 32);
    other = plain;
    other.learned_positions = false;  // q and k are read and written
    EXPECT_EQ(more(other, plain), Directions(2 * 16, 2 * 16));
    EXPECT_EQ(moved(other).recompute_heads, 0) << "q and k stay as they are";
    other.rotary_channels = 2;
    EXPECT_EQ(more(other, plain), Directions(2 * 8, 2 * 8));
    other.roped = {false, true};
    EXPECT_EQ(more(other, plain), Directions(0, 0));
    EXPECT_EQ(moved(other, 1).forward - moved(other, 0).forward, 2 * 8);
}

TEST(BlockWork, NormsOfQAndKMoveAllThree) {
    ModelConfig plain = narrow();
    ModelConfig normed = plain;
    normed.qk_norm = true;
    EXPECT_EQ(more(normed, plain), Directions(2 * 24, 3 * 24));
    EXPECT_EQ(moved(normed).recompute, moved(plain).recompute);
    EXPECT_EQ(moved(normed).recompute_heads, 2 * 24);
    normed.learned_positions = false;  // R also rotates q and k again
    EXPECT_EQ(moved(normed).recompute_heads, 2 * 24 + 2 * 16);
}

TEST(BlockWork, ElementsThatMoveForExpertsAreThoseOfTheirRows) {
    ModelConfig dense = narrow();
    dense.gated = true;
    ModelConfig sparse = narrow_experts();
    // Rows of h are copied (2) and added up (1); the activation reads 2 f and writes f.
    EXPECT_EQ(more(sparse, dense),
              Directions(2 * (3 * 8 + 3 * 16) - 3 * 32, 2 * (5 * 8 + 9 * 16) - 5 * 32));
    EXPECT_EQ(moved(sparse).recompute, 2 * 2 * 8 + 2 * (2 * 8 + 3 * 16));
    sparse.moe.sparse = {false, true};
    EXPECT_EQ(more(sparse, dense), Directions(0, 0));
    EXPECT_EQ(moved(sparse, 1).recompute, 2 * 2 * 8 + 2 * (2 * 8 + 3 * 16));
}

/// Bytes in bf16 per token.
struct Left {
    int64_t saved = 0;       ///< by F
    int64_t recomputed = 0;  ///< by F, and made again by a selective R
    int64_t for_weight = 0;  ///< by I
};
Left left_by_layer(const ModelConfig& config) {
    constexpr int64_t kTokens = int64_t{1} << 16;  // numbers of a microbatch are little beside it
    Views costly, cheap, gradients;
    SavedViews saved{.costly = {costly, kTokens, DType::bf16},
                     .cheap = {cheap, kTokens, DType::bf16}};
    TokenViews for_weight(gradients, kTokens, DType::bf16);
    const ModelLayers layers(config);
    (void)layers[0].block.saved_views(saved);
    (void)layers[0].block.gradient_views(for_weight);
    return {.saved = (costly.used() + cheap.used()) / kTokens,
            .recomputed = cheap.used() / kTokens,
            .for_weight = gradients.used() / kTokens};
}

ModelConfig of_family(const char* family, int64_t hidden, int64_t ffn, int64_t heads,
                      int64_t groups) {
    ModelConfig config;
    config.hidden_size = hidden;
    config.ffn_hidden_size = ffn;
    config.num_attention_heads = heads;
    config.num_query_groups = groups;
    set_family(config, family);
    return config;
}

TEST(BlockWork, AGptLeavesWhatTheMemoryDocumentSays) {
    ModelConfig gpt = of_family("gpt2", 1024, 4096, 16, 0);
    const Left left = left_by_layer(gpt);
    // 8 h + 2 f elements of 2 bytes, of which the stage keeps the input; mean and deviation of two
    // norms and a row statistic per head.
    EXPECT_EQ(left.saved, 2 * (7 * 1024 + 2 * 4096) + 4 * (2 * 2 + 16));
    // Outputs of two norms and of the activation; mean and deviation of the norms' rows.
    EXPECT_EQ(left.recomputed, 2 * (2 * 1024 + 4096) + 4 * 2 * 2);
    // Gradients of both norms' outputs, of what is between the sublayers, of q, k and v, and of f.
    EXPECT_EQ(left.for_weight, 2 * (3 * 1024 + 3 * 1024 + 4096));
    gpt.parallel_residual = true;
    EXPECT_EQ(left.saved - left_by_layer(gpt).saved, 2 * 1024);
    EXPECT_EQ(left.for_weight - left_by_layer(gpt).for_weight, 2 * 1024);
}

TEST(BlockWork, NormsKeepWhatTheyRead) {
    ModelConfig qwen = of_family("qwen3", 1024, 3072, 16, 8);
    const Left normed = left_by_layer(qwen);
    qwen.qk_norm = false;
    // q, k and v also before the norms, and a statistic per head of q and k.
    EXPECT_EQ(normed.saved - left_by_layer(qwen).saved, 2 * (16 + 2 * 8) * 64 + 4 * (16 + 8));
    // The residual stream between the sublayers and both sublayer outputs; q, k and v before and
    // after their norms, what the heads make; gate, up and their product. A statistic per norm and
    // head.
    const Left olmo = left_by_layer(of_family("olmo2", 4096, 11008, 32, 32));
    EXPECT_EQ(olmo.saved, 2 * (3 * 4096 + 7 * 4096 + 3 * 11008) + 4 * (2 + 2 + 32));
    EXPECT_EQ(olmo.recomputed, 2 * (3 * 4096 + 11008) + 4 * 2);
    // Four norms, of which two make what goes into the residual stream; a gate.
    EXPECT_EQ(left_by_layer(of_family("gemma2", 3584, 14336, 16, 8)).recomputed,
              2 * (2 * 3584 + 14336) + 4 * 2);
}

TEST(BlockWork, ExpertsLeaveTheirRows) {
    ModelConfig mixtral = of_family("mixtral", 4096, 14336, 32, 8);
    mixtral.moe.experts = 8;
    const Left left = left_by_layer(mixtral);
    // In k rows: copies of h, and 3 f; logits, log Z, and four numbers per choice.
    EXPECT_EQ(left.saved,
              2 * (3 * 4096 + 6144 + 4096 + 2 * (4096 + 3 * 14336)) + 4 * (2 + 32 + 8 + 1 + 8));
    EXPECT_EQ(left.recomputed, 2 * (2 * 4096 + 2 * (4096 + 14336)) + 4 * 2);
    EXPECT_EQ(left.for_weight, 2 * (3 * 4096 + 6144 + 8 + 2 * (4096 + 2 * 14336)));
}

/// What a shared expert of 100 columns adds to a layer with experts.
struct AddedByShared {
    MovedElements moves;
    Left left;
    explicit AddedByShared(bool gate) {
        ModelConfig without = of_family("mixtral", 4096, 14336, 32, 8);
        without.moe.experts = 8;
        ModelConfig with = without;
        with.moe.shared_expert = true;
        with.moe.shared_ffn_hidden_size = 100;
        with.moe.shared_gate = gate;
        const MovedElements a = moved(with), b = moved(without);
        moves = {.forward = a.forward - b.forward,
                 .backward = a.backward - b.backward,
                 .recompute = a.recompute - b.recompute};
        const Left c = left_by_layer(with), d = left_by_layer(without);
        left = {.saved = c.saved - d.saved,
                .recomputed = c.recomputed - d.recomputed,
                .for_weight = c.for_weight - d.for_weight};
    }
};

// Its activation reads gate and up and writes their product; backward it reads them and dy, and
// writes two gradients.
TEST(BlockWork, ASharedExpertIsAnMlpOfAllTokens) {
    const AddedByShared shared(false);
    EXPECT_EQ(shared.moves.forward, 3 * 100);
    EXPECT_EQ(shared.moves.backward, 5 * 100);
    EXPECT_EQ(shared.moves.recompute, 3 * 100);
    EXPECT_EQ(shared.left.saved, 2 * 3 * 100);
    EXPECT_EQ(shared.left.recomputed, 2 * 100);
    // Gradients of gate and up, and that of x through them.
    EXPECT_EQ(shared.left.for_weight, 2 * (2 * 100 + 4096));
}

// Rows of h are copied (2) and added up (1), and the copy is kept; its router has one logit, its
// log Z and four numbers of the choice.
TEST(BlockWork, ASharedExpertWithAGateIsAMixtureOfOne) {
    const AddedByShared shared(true);
    EXPECT_EQ(shared.moves.forward, 3 * 4096 + 3 * 100);
    EXPECT_EQ(shared.moves.backward, 5 * 4096 + 9 * 100);
    EXPECT_EQ(shared.moves.recompute, 2 * 4096 + 3 * 100);
    EXPECT_EQ(shared.left.saved, 2 * (4096 + 3 * 100) + 4 * (1 + 1 + 4));
    EXPECT_EQ(shared.left.recomputed, 2 * (4096 + 100));
    EXPECT_EQ(shared.left.for_weight, 2 * (1 + 4096 + 2 * 100 + 4096));
}

TEST(ModelLayers, LayersThatAreAlikeAreOne) {
    ModelConfig config = narrow_experts();
    config.num_layers = 6;
    config.learned_positions = false;
    config.sliding_window = 4;
    config.windowed = {true, false, true, true, true, false};
    config.roped = {true, true, true, false, true, true};
    config.moe.sparse = {false, true, false, true, true, true};
    const ModelLayers layers(config);
    EXPECT_EQ(layers.count(), 6);
    EXPECT_EQ(&layers[2], &layers[0]);
    EXPECT_EQ(&layers[5], &layers[1]);
    for (const int layer : {1, 3, 4}) EXPECT_NE(&layers[layer], &layers[0]);
    EXPECT_NE(&layers[4], &layers[3]);
    int made = 0;
    EXPECT_EQ(layers.map([&](const CountedLayer&) { return made++; }),
              (std::vector{0, 1, 0, 2, 3, 1}));
}

TEST(ElementCount, AddsUpElementsByHowRanksShareThem) {
    ModelConfig config = narrow_experts();
    config.moe.correction_bias = true;
    const ModelLayers layers(config);
    ElementCount count;
    for (const ParameterCount::Counted& tensor : layers[0].parameters.all()) count.add(tensor);
    EXPECT_EQ(count.of(TensorCut::rows), 24 * 8);
    EXPECT_EQ(count.of(TensorCut::columns), 8 * 8 + 24) << "its bias is cut, too";
    EXPECT_EQ(count.of(TensorCut::repeated), 8 + 2 * 2 * 8 + 4 * 8);
    EXPECT_EQ(count.of(TensorCut::experts), 4 * 3 * 16 * 8);
    EXPECT_EQ(count.correction_biases(), 4);
    EXPECT_EQ(count.total(), 24 * 8 + 8 * 8 + 24 + 8 + 2 * 2 * 8 + 4 * 8 + 4 * 3 * 16 * 8);
}

}  // namespace
}  // namespace vocabpipe::testing
