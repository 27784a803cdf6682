// SPDX-License-Identifier: Apache-2.0
// Weights depend on the seed only: not on the number of ranks, the shards or the stages.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/train/training_run.hpp"

namespace vocabpipe::testing {
namespace {

TrainingSetup untrained(int ranks, VocabMode mode, bool tied, uint64_t seed = 7) {
    TrainingSetup setup{.ranks = ranks, .mode = mode, .steps = 0, .seed = seed};
    setup.config.num_layers = 3;
    setup.config.hidden_size = 20;
    setup.config.ffn_hidden_size = 28;
    setup.config.num_attention_heads = 2;
    setup.config.seq_length = setup.config.max_position_embeddings = 5;
    setup.config.vocab_size = 2003;  // shards begin at odd rows and elements not divisible by 8
    setup.config.tied = tied;
    return setup;
}

TEST(Initialisation, IsTheSameForEveryNumberOfRanksAndShards) {
    for (const bool tied : {false, true}) {
        const Training expected = train_on_threads(untrained(1, VocabMode::none, tied));
        for (const int p : {2, 3, 5}) {
            for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
                const Training actual = train_on_threads(untrained(p, mode, tied));
                EXPECT_EQ(first_difference(expected, actual), "")
                    << "p=" << p << " " << to_string(mode);
            }
        }
    }
}

TEST(Initialisation, CopiesOfATiedWeightAreEqual) {
    const Training run = train_on_threads(untrained(3, VocabMode::none, true));
    EXPECT_EQ(run.weights.at("transformer.wte.weight"),
              run.weights.at("transformer.wte.weight (copy)"));
}

TEST(Initialisation, AnotherSeedMakesOtherWeights) {
    const Training a = train_on_threads(untrained(1, VocabMode::none, false, 1));
    const Training b = train_on_threads(untrained(1, VocabMode::none, false, 2));
    EXPECT_NE(a.weights.at("lm_head.weight"), b.weights.at("lm_head.weight"));
    EXPECT_NE(a.weights.at("transformer.h.0.attn.c_attn.weight"),
              b.weights.at("transformer.h.0.attn.c_attn.weight"));
}

TEST(Initialisation, IsGpt2s) {
    const Training run = train_on_threads(untrained(1, VocabMode::none, false));
    const auto deviation = [&](const char* name) {
        double sum = 0;
        double squares = 0;
        const std::vector<float>& w = run.weights.at(name);
        for (const float v : w) {
            sum += v;
            squares += static_cast<double>(v) * v;
        }
        const auto n = static_cast<double>(w.size());
        EXPECT_NEAR(sum / n, 0, 5 * 0.02 / std::sqrt(n)) << name;
        return std::sqrt(squares / n);
    };
    // A deviation estimated from n numbers is off by 1 / sqrt(2 n); five times that never happens.
    EXPECT_NEAR(deviation("transformer.wte.weight"), 0.02, 0.02 * 5 / std::sqrt(2 * 40060.0));
    EXPECT_NEAR(deviation("lm_head.weight"), 0.02, 0.02 * 5 / std::sqrt(2 * 40060.0));
    EXPECT_NEAR(deviation("transformer.h.1.attn.c_attn.weight"), 0.02,
                0.02 * 5 / std::sqrt(2 * 1200.0));
    const double into_residual = 0.02 / std::sqrt(2 * 3.0);
    EXPECT_NEAR(deviation("transformer.h.1.attn.c_proj.weight"), into_residual,
                into_residual * 5 / std::sqrt(2 * 400.0));
    EXPECT_NEAR(deviation("transformer.h.1.mlp.c_proj.weight"), into_residual,
                into_residual * 5 / std::sqrt(2 * 560.0));
    EXPECT_NE(run.weights.at("lm_head.weight"), run.weights.at("transformer.wte.weight"));
    for (const float v : run.weights.at("transformer.ln_f.weight")) EXPECT_EQ(v, 1);
    for (const float v : run.weights.at("transformer.h.0.ln_1.bias")) EXPECT_EQ(v, 0);
}

}  // namespace
}  // namespace vocabpipe::testing
