// SPDX-License-Identifier: Apache-2.0
// FLOPs of layers, and the times that plans take them for, by hand.
#include "vocabpipe/model_flops.hpp"

#include "src/model/blocks/heads.hpp"
#include "vocabpipe/flop_costs.hpp"
#include "vocabpipe/model_rank.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace vocabpipe::testing {
namespace {

// h = 8 in two heads, f = 32, 8 tokens.
ModelConfig narrow_gpt() {
    ModelConfig config;
    config.num_layers = 2;
    config.hidden_size = 8;
    config.ffn_hidden_size = 32;
    config.num_attention_heads = 2;
    config.seq_length = config.max_position_embeddings = 8;
    config.vocab_size = 100;
    return config;
}
/// q, k, v and the output of attention; the MLP.
constexpr double kQkvAndProj = 2 * (8 * 24 + 8 * 8), kMlp = 2 * 2 * 8 * 32;

// Scores and their products with v: 2 x 2 FLOPs per column of q and key that a query sees.
TEST(ModelFlops, AQuerySeesHalfOfTheTokensInTheMean) {
    EXPECT_EQ(layers_flops_per_token(narrow_gpt()), 2 * (kQkvAndProj + kMlp + 4 * 8 * 4));
}

TEST(ModelFlops, AWindowOfWTokensIsSeenInFullButForTheFirstW) {
    ModelConfig config = narrow_gpt();
    const double dense = 2 * (kQkvAndProj + kMlp);
    config.sliding_window = 4;
    config.windowed = {true, false};
    // w - w^2 / 2 s = 4 - 16 / 16 keys.
    EXPECT_EQ(layers_flops_per_token(config), dense + 4 * 8 * (3 + 4));
    config.windowed = {true, true};
    EXPECT_EQ(layers_flops_per_token(config), dense + 4 * 8 * (3 + 3));
    config.sliding_window = 2;  // 2 - 4 / 16
    EXPECT_EQ(layers_flops_per_token(config), dense + 4 * 8 * 2 * 1.75);
    for (const int64_t wide : {8, 20}) {
        config.sliding_window = wide;
        EXPECT_EQ(layers_flops_per_token(config), dense + 4 * 8 * (4 + 4));
    }
}

TEST(ModelFlops, AQueryThatIsNotCausalSeesAllKeys) {
    const kernels::AttentionShape shape{.heads = 2, .head_size = 4, .kv_heads = 2, .causal = false};
    EXPECT_EQ(heads_flops(shape, 8), 4 * 8 * 8);
}

// A layer, a projection of 2 h to h columns, and a row of the output layer more, as Megatron-LM
// counts them.
TEST(ModelFlops, ADepthIsALayerAProjectionAndARowOfTheOutputLayer) {
    ModelConfig config = narrow_gpt();
    const double layer = kQkvAndProj + kMlp + 4 * 8 * 4, output = 2 * 8 * 100;
    EXPECT_EQ(mtp_flops_per_token(config), 0);
    EXPECT_EQ(forward_flops_per_token(config), 2 * layer + output);
    config.mtp_num_layers = 3;
    const double depth = layer + 2 * 16 * 8;
    EXPECT_EQ(layers_flops_per_token(config), 2 * layer);
    EXPECT_EQ(mtp_flops_per_token(config), 3 * depth);
    EXPECT_EQ(forward_flops_per_token(config), 2 * layer + 3 * depth + 4 * output);
    EXPECT_EQ(output_layer_in_layers(config), 4 * output / layer);
    EXPECT_EQ(mtp_in_layers(config), 3 * depth / layer);
}

// The layer of a depth is like the model's last: with its experts, without its window.
TEST(ModelFlops, ADepthHasTheLayerOfTheModelsLast) {
    ModelConfig config = narrow_gpt();
    config.gated = true;
    config.moe = {.experts = 5, .top_k = 3, .ffn_hidden_size = 16, .sparse = {false, true}};
    config.mtp_num_layers = 1;
    const double experts = 2 * (8 * 5 + 3 * 3 * 8 * 16);
    EXPECT_EQ(mtp_flops_per_token(config), kQkvAndProj + 4 * 8 * 4 + experts + 2 * 16 * 8);
}

TEST(ModelFlops, GroupedQueriesHaveFewerColumnsOfKAndV) {
    ModelConfig config = narrow_gpt();
    config.num_query_groups = 1;  // k and v of 4 columns each
    EXPECT_EQ(layers_flops_per_token(config), 2 * (2 * (8 * 16 + 8 * 8) + kMlp + 4 * 8 * 4));
    config.kv_channels = 10;  // heads of 10 columns: 20 of q, 10 of k and v
    EXPECT_EQ(layers_flops_per_token(config), 2 * (2 * (8 * 40 + 20 * 8) + kMlp + 4 * 20 * 4));
}

TEST(ModelFlops, AGateIsAThirdProductAndATokenHasKExperts) {
    ModelConfig config = narrow_gpt();
    config.gated = true;
    const double attention = kQkvAndProj + 4 * 8 * 4;
    EXPECT_EQ(layers_flops_per_token(config), 2 * (attention + 1.5 * kMlp));
    config.moe = {.experts = 5, .top_k = 3, .ffn_hidden_size = 16, .sparse = {false, true}};
    const double experts = 2 * (8 * 5 + 3 * 3 * 8 * 16);  // a router, and three products
    EXPECT_EQ(layers_flops_per_token(config), 2 * attention + 1.5 * kMlp + experts);
    config.moe.shared_expert = true;
    config.moe.shared_ffn_hidden_size = 10;
    config.moe.shared_gate = false;
    EXPECT_EQ(layers_flops_per_token(config),
              2 * attention + 1.5 * kMlp + experts + 2 * 3 * 8 * 10);
    config.moe.shared_gate = true;
    EXPECT_EQ(layers_flops_per_token(config),
              2 * attention + 1.5 * kMlp + experts + 2 * (3 * 8 * 10 + 8));
}

TEST(ModelFlops, TheOutputLayerIsOneProductWithTheVocabulary) {
    const ModelConfig config = narrow_gpt();
    const double layer = kQkvAndProj + kMlp + 4 * 8 * 4;
    EXPECT_EQ(forward_flops_per_token(config), 2 * layer + 2 * 8 * 100);
    EXPECT_DOUBLE_EQ(output_layer_in_layers(config), 2 * 8 * 100 / layer);
}

// Two stages of one and three layers, 3 sequences of 8 tokens.
TEST(FlopCosts, PassesTakeTheirFlopsAtTheNominalRate) {
    ModelConfig config = narrow_gpt();
    config.hidden_size = 80;
    config.num_layers = 4;
    config.vocab_size = 1001;
    const double layer = 2 * (80 * 240 + 80 * 80) + 2 * 2 * 80 * 32 + 4 * 80 * 4;
    Schedule schedule;
    schedule.ranks = schedule.stages = 2;
    schedule.rank_of_stage = {0, 1};
    for (const int tensor : {1, 2}) {
        for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
            place_vocabulary(schedule, mode, config.vocab_size);
            const TableCosts costs = flop_costs(config,
                                                {.layers_per_stage = {1, 3},
                                                 .micro_batch_size = 3,
                                                 .replicas = 2,
                                                 .tensor = tensor},
                                                schedule);
            const auto ns = [&](int rank, Op op) {
                return costs.pass_ns(rank * 2 * tensor, {op, static_cast<uint16_t>(rank), 0});
            };
            const double tokens = 3 * 8;
            const double forward = tokens * layer / kNominalFlopsPerNs / tensor;
            for (const Op op : {Op::F, Op::I, Op::W}) {
                EXPECT_EQ(ns(0, op), std::llround(forward));
                EXPECT_EQ(ns(1, op), std::llround(3 * forward));
            }
            EXPECT_EQ(ns(1, Op::B), std::llround(2 * 3 * forward));
            // The most rows that a tensor rank has of all 1001, or of the last rank's 501.
            const bool whole = mode == VocabMode::none;
            const double rows = tensor == 1 ? (whole ? 1001 : 501) : (whole ? 501 : 251);
            const double product = 2 * tokens * 80 * rows / kNominalFlopsPerNs;
            EXPECT_EQ(ns(1, Op::S), std::llround(whole ? product : 2 * product));
            EXPECT_EQ(ns(1, Op::T), std::llround(whole ? 2 * product : product));
            EXPECT_EQ(ns(0, Op::E), 24 * 80 * 4 / 20);
            EXPECT_EQ(ns(0, Op::G), 24 * 80 * 4 / 20);
            EXPECT_EQ(costs.layers_per_stage, 2);
        }
    }
}

TEST(FlopCosts, DepthsAreWorkOfTheLastStageAndRowsOfTheOutputLayer) {
    ModelConfig config = narrow_gpt();
    Schedule schedule;
    schedule.ranks = schedule.stages = 2;
    schedule.rank_of_stage = {0, 1};
    place_vocabulary(schedule, VocabMode::none, config.vocab_size);
    const auto costs = [&] {
        return flop_costs(config, {.layers_per_stage = {1, 1}, .micro_batch_size = 50000},
                          schedule);
    };
    const auto ns = [](const TableCosts::OpCosts& of, Op op) {
        return of[static_cast<size_t>(op)];
    };
    const TableCosts none = costs();
    config.mtp_num_layers = 2;
    const TableCosts two = costs();
    EXPECT_EQ(two.stage_ns[0], none.stage_ns[0]);
    const double tokens = 50000.0 * 8;
    const double depths = 2 * (kQkvAndProj + kMlp + 4 * 8 * 4 + 2 * 16 * 8);
    EXPECT_NEAR(static_cast<double>(ns(two.stage_ns[1], Op::F) - ns(none.stage_ns[1], Op::F)),
                depths * tokens / kNominalFlopsPerNs, 1);
    EXPECT_EQ(ns(two.rank_ns[1], Op::S), 3 * ns(none.rank_ns[1], Op::S));
    EXPECT_EQ(ns(two.rank_ns[1], Op::T), 3 * ns(none.rank_ns[1], Op::T));
}

TEST(FlopCosts, RecomputationTakesAForwardOrItsBytes) {
    ModelConfig config = narrow_gpt();
    Schedule schedule;
    schedule.ranks = schedule.stages = 1;
    schedule.rank_of_stage = {0};
    place_vocabulary(schedule, VocabMode::none, config.vocab_size);
    const auto ns = [&](Recompute recompute, int tensor = 1) {
        const TableCosts costs = flop_costs(config,
                                            {.layers_per_stage = {2},
                                             .micro_batch_size = 5,
                                             .tensor = tensor,
                                             .recompute = recompute},
                                            schedule);
        return costs.stage_ns[0][static_cast<size_t>(Op::R)];
    };
    EXPECT_EQ(ns(Recompute::none), 0);
    const double forward = 2 * (kQkvAndProj + kMlp + 4 * 8 * 4) * 40 / kNominalFlopsPerNs;
    EXPECT_EQ(ns(Recompute::full), std::llround(forward));
    // Two norms read and write h, the activation f, of 4 bytes, at 20 bytes per ns.
    EXPECT_EQ(ns(Recompute::selective), 2 * (2 * 2 * 8 + 2 * 32) * 4 * 40 / 20);
    EXPECT_EQ(ns(Recompute::selective, 2), ns(Recompute::selective) / 2);
}

}  // namespace
}  // namespace vocabpipe::testing
