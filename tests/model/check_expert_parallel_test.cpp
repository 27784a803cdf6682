// SPDX-License-Identifier: Apache-2.0
#include "src/model/check_expert_parallel.hpp"

#include "tests/model/model_cases.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <string>

namespace vocabpipe::testing {
namespace {

template <typename Check>
std::string refusal(const Check& check) {
    try {
        check();
    } catch (const UsageError& error) {
        return error.what();
    }
    return "none";
}

std::string refusal_of(const ModelConfig& config, int ranks, int expert_tensor = 1) {
    return refusal([&] { check_expert_parallel(config, ranks, expert_tensor); });
}
std::string refusal_of(const Mesh& mesh, int expert_tensor = 1) {
    return refusal([&] { check_expert_ranks(mesh, expert_tensor); });
}

TEST(CheckExpertParallel, TakesWhatDivides) {
    ModelConfig config = small_family("qwen3_moe", 2, 8, 29, false);
    config.moe.experts = 6;
    for (const int ranks : {1, 2, 3, 6}) EXPECT_EQ(refusal_of(config, ranks), "none");
    EXPECT_EQ(refusal_of(small_family("llama", 2, 8, 29, false), 1), "none");
}

TEST(CheckExpertParallel, NamesFlagValueAndRemedy) {
    ModelConfig config = small_family("qwen3_moe", 2, 8, 29, false);
    config.moe.experts = 6;
    EXPECT_EQ(refusal_of(config, 4),
              "--expert-model-parallel-size 4: --num-experts is 6, of which every rank needs "
              "equally many; use a divisor of 6");
    EXPECT_EQ(refusal_of(small_family("llama", 2, 8, 29, false), 2),
              "--expert-model-parallel-size 2: --model-type llama has no experts; use 1");
}

TEST(CheckExpertParallel, TakesRanksThatShareAnExpert) {
    ModelConfig config = small_family("qwen3_moe", 2, 8, 29, false);
    config.moe.experts = 2;
    config.moe.ffn_hidden_size = 24;
    EXPECT_EQ(refusal_of(config, 4, 2), "none");
    EXPECT_EQ(refusal_of(config, 8, 8), "none");
    EXPECT_EQ(refusal_of(config, 10, 5),
              "--expert-tensor-parallel-size 5: --moe-ffn-hidden-size is 24, of which every rank "
              "needs equally many; use a divisor of 24");
    config.moe.ffn_hidden_size = 0;
    config.ffn_hidden_size = 16;
    EXPECT_EQ(refusal_of(config, 3, 3),
              "--expert-tensor-parallel-size 3: --ffn-hidden-size is 16, of which every rank needs "
              "equally many; use a divisor of 16");
    EXPECT_EQ(refusal_of(config, 8, 2),
              "--expert-model-parallel-size 4: --num-experts is 2, of which every rank needs "
              "equally many; use a divisor of 2");
    EXPECT_EQ(refusal_of(config, 4, 3),
              "--expert-tensor-parallel-size 3: must divide the 4 ranks that share the experts of "
              "a layer; use a divisor of 4");
    EXPECT_EQ(refusal_of(config, 1, 0), "--expert-tensor-parallel-size 0: must be at least 1");
    EXPECT_EQ(refusal_of(small_family("llama", 2, 8, 29, false), 2, 2),
              "--expert-tensor-parallel-size 2: --model-type llama has no experts; use 1");
    EXPECT_EQ(refusal_of(small_family("llama", 2, 8, 29, false), 4, 2),
              "--expert-model-parallel-size 2: --model-type llama has no experts; use 1");
}

TEST(CheckExpertParallel, NeedsRanksAtOnePlaceOfThePipelineThatNest) {
    EXPECT_EQ(refusal_of(Mesh{2, 2, 1, 2}), "none");
    EXPECT_EQ(refusal_of(Mesh{1, 3, 2, 6}), "none");
    EXPECT_EQ(refusal_of(Mesh{1, 1, 4, 2}), "none");
    EXPECT_EQ(refusal_of(Mesh{1, 1, 1, 0}), "--expert-model-parallel-size 0: must be at least 1");
    EXPECT_EQ(refusal_of(Mesh{2, 3, 2, 4}),
              "--expert-model-parallel-size 4: must divide replicas x tensor ranks, which are "
              "3 x 2; use a divisor of 6, or a smaller --pipeline-model-parallel-size");
    EXPECT_EQ(refusal_of(Mesh{1, 3, 2, 3}),
              "--expert-model-parallel-size 3: must be a divisor or a multiple of "
              "--tensor-model-parallel-size 2; use 1");
    EXPECT_EQ(refusal_of(Mesh{2, 2, 2, 4}, 2), "none");
    EXPECT_EQ(refusal_of(Mesh{2, 3, 2, 4}, 2),
              "--expert-tensor-parallel-size 2: times --expert-model-parallel-size 2 these are 4 "
              "ranks, which must divide replicas x tensor ranks, which are 3 x 2; use sizes whose "
              "product is a divisor of 6, or a smaller --pipeline-model-parallel-size");
    EXPECT_EQ(refusal_of(Mesh{1, 3, 2, 3}, 3),
              "--expert-tensor-parallel-size 3: times --expert-model-parallel-size 1 these are 3 "
              "ranks, which must be a divisor or a multiple of --tensor-model-parallel-size 2; use "
              "sizes whose product is 1");
}

}  // namespace
}  // namespace vocabpipe::testing
