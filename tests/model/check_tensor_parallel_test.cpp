// SPDX-License-Identifier: Apache-2.0
#include "src/model/check_tensor_parallel.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/model/model_cases.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

std::string refusal(const ModelConfig& config, int ranks, int64_t tokens) {
    try {
        check_tensor_parallel(config, ranks, tokens);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "none";
}

/// Eight heads on four keys and values, f = 72.
ModelConfig config_of(std::string_view family) {
    ModelConfig config = small_family(family, 2, 8, 29, false);
    config.hidden_size = 32;
    config.ffn_hidden_size = 72;
    config.num_attention_heads = 8;
    config.num_query_groups = 4;
    return config;
}

TEST(CheckTensorParallel, TakesWhatDivides) {
    EXPECT_EQ(refusal(config_of("llama"), 1, 7), "none");
    EXPECT_EQ(refusal(config_of("llama"), 2, 24), "none");
    EXPECT_EQ(refusal(config_of("llama"), 4, 24), "none");
    EXPECT_EQ(refusal(config_of("qwen3"), 4, 24), "none");
    EXPECT_EQ(refusal(config_of("olmoe"), 1, 7), "none");
}

TEST(CheckTensorParallel, NamesFlagValueAndRemedy) {
    EXPECT_EQ(refusal(config_of("llama"), 8, 24),
              "--tensor-model-parallel-size 8: --num-query-groups is 4, of which every rank needs "
              "equally many; use a divisor of 4");
    ModelConfig heads = config_of("llama");
    heads.num_attention_heads = 6;
    heads.num_query_groups = 0;
    EXPECT_THAT(refusal(heads, 4, 24), HasSubstr("--num-attention-heads is 6"));
    ModelConfig ffn = config_of("llama");
    ffn.ffn_hidden_size = 74;
    EXPECT_THAT(refusal(ffn, 4, 24), HasSubstr("--ffn-hidden-size is 74"));
    ModelConfig experts = config_of("mixtral");
    experts.ffn_hidden_size = 74;  // of an expert, which no rank has a part of
    EXPECT_EQ(refusal(experts, 4, 24), "none");
    ModelConfig shared = config_of("dots1");
    shared.moe.shared_ffn_hidden_size = 6;
    EXPECT_THAT(refusal(shared, 4, 24), HasSubstr("--moe-shared-expert-intermediate-size is 6"));
    EXPECT_THAT(refusal(config_of("llama"), 4, 22),
                HasSubstr("--micro-batch-size times --seq-length is 22"));
    EXPECT_THAT(refusal(config_of("llama"), 0, 24), HasSubstr("must be at least 1"));
    EXPECT_EQ(refusal(config_of("deepseek_v3"), 2, 24),
              "--tensor-model-parallel-size 2: latent attention (--model-type deepseek_v3) is not "
              "cut among ranks; use 1");
}

}  // namespace
}  // namespace vocabpipe::testing
