// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "src/train/checkpoint/model_config_file.hpp"
#include "tests/tool/run_program.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

/// The line with which flags are refused, before data are opened.
std::string refused(const std::string& flags) {
    const Outcome outcome = run_shell(
        "'" TRAIN_GPT_PROGRAM "' --transport threads --ranks 1 --data-path none " + flags);
    EXPECT_EQ(outcome.exit_code, 2) << flags << ": " << outcome.error;
    EXPECT_EQ(std::ranges::count(outcome.error, '\n'), 1) << outcome.error;
    return outcome.error;
}

TEST(ModelFlags, RefuseWhatFilesOfGpt2CannotSay) {
    EXPECT_THAT(refused("--num-query-groups 2"), HasSubstr("--num-query-groups 2: files of gpt2"));
    EXPECT_THAT(refused("--kv-channels 8"), HasSubstr("--kv-channels 8: files of gpt2"));
}

TEST(ModelFlags, RefuseWhatContradictsTheFamily) {
    EXPECT_THAT(refused("--model-type gpt2 --swiglu"), HasSubstr("--swiglu: --model-type gpt2"));
    EXPECT_THAT(refused("--model-type gemma2 --swiglu"),
                HasSubstr("--swiglu: --model-type gemma2"));
    EXPECT_THAT(refused("--model-type llama --normalization LayerNorm"),
                HasSubstr("--normalization LayerNorm: --model-type llama has RMSNorm"));
    EXPECT_THAT(refused("--model-type llama --position-embedding-type learned_absolute"),
                HasSubstr("--model-type llama has rotary positions; remove the flag"));
    EXPECT_THAT(refused("--rotary-base 500"), HasSubstr("--rotary-base: --model-type gpt2"));
    EXPECT_THAT(refused("--model-type llama --sliding-window 8"), HasSubstr("--sliding-window"));
    EXPECT_THAT(refused("--rotary-percent 1"), HasSubstr("--rotary-percent: --model-type gpt2"));
    EXPECT_THAT(refused("--model-type llama --rotary-percent 0.5"),
                HasSubstr("--rotary-percent 0.5: --model-type llama has rotary positions of whole "
                          "heads; remove the flag"));
}

TEST(ModelFlags, RefuseSinksThatCannotBe) {
    EXPECT_THAT(refused("--softmax-type off-by-one"),
                HasSubstr("--softmax-type off-by-one: must be one of vanilla, learnable"));
    EXPECT_THAT(
        refused("--model-type deepseek_v3 --softmax-type learnable"),
        HasSubstr("--softmax-type learnable: --model-type deepseek_v3 has latent attention, "
                  "which has no sinks; remove the flag"));
}

TEST(ModelFlags, RefuseExpertsThatCannotBe) {
    for (const char* const flag :
         {"--num-experts 4", "--moe-router-topk 2", "--moe-ffn-hidden-size 32",
          "--moe-layer-freq 2", "--moe-router-pre-softmax",
          "--moe-shared-expert-intermediate-size 8"}) {
        EXPECT_THAT(refused(std::string("--model-type llama ") + flag),
                    HasSubstr(": --model-type llama has no experts; remove the flag"));
    }
    const auto refused_moe = [](const std::string& flags) {
        return refused("--model-type qwen3_moe --num-layers 4 " + flags);
    };
    EXPECT_THAT(refused_moe("--num-experts 0"), HasSubstr("--num-experts 0"));
    EXPECT_THAT(refused_moe("--num-experts 5000"), HasSubstr("--num-experts 5000"));
    EXPECT_THAT(refused_moe("--num-experts 4 --moe-router-topk 5"),
                HasSubstr("--moe-router-topk 5: must be from 1 to --num-experts 4"));
    EXPECT_THAT(refused_moe("--moe-shared-expert-intermediate-size 8"),
                HasSubstr("--moe-shared-expert-intermediate-size 8: --model-type qwen3_moe has no "
                          "expert that all tokens share; remove the flag, or use qwen2_moe, "
                          "dots1 or deepseek_v3"));
    EXPECT_THAT(refused_moe("--moe-aux-loss-coeff -1"), HasSubstr("--moe-aux-loss-coeff -1"));
    EXPECT_THAT(refused_moe("--moe-z-loss-coeff nan"), HasSubstr("--moe-z-loss-coeff nan"));
    for (const char* const layers : {"5", "0", "x", "1,1,1", "0,1,2,1", "[0]*4"}) {
        EXPECT_THAT(refused_moe(std::string("--moe-layer-freq '") + layers + "'"),
                    HasSubstr(std::string("--moe-layer-freq ") + layers +
                              ": must be a number from 1 to 4, or a 0 or 1 for each of the 4"));
    }
    EXPECT_THAT(refused_moe("--moe-layer-freq 0,0,0,0"),
                HasSubstr("--moe-layer-freq: no layer has experts"));
}

TEST(ModelFlags, RefuseWhatFilesOfMixtralCannotSay) {
    const auto refused_mixtral = [](const std::string& flags) {
        return refused("--model-type mixtral --num-layers 2 " + flags);
    };
    EXPECT_THAT(refused_mixtral("--ffn-hidden-size 64 --moe-ffn-hidden-size 32"),
                HasSubstr("--moe-ffn-hidden-size 32: --model-type mixtral has experts of "
                          "--ffn-hidden-size 64; set that flag instead"));
    EXPECT_THAT(refused_mixtral("--moe-layer-freq 2"),
                HasSubstr("--moe-layer-freq: --model-type mixtral has experts in all layers"));
    EXPECT_THAT(refused_mixtral("--moe-router-pre-softmax"),
                HasSubstr("--moe-router-pre-softmax: --model-type mixtral has weights that add"));
}

TEST(ModelFlags, RefuseWhatTheRouterOfDotsCannotBe) {
    const auto refused_dots = [](const std::string& flags) {
        return refused("--model-type dots1 --num-layers 3 --num-experts 8 --moe-router-topk 3 " +
                       flags);
    };
    EXPECT_THAT(refused_dots("--moe-router-num-groups 3"),
                HasSubstr("--moe-router-num-groups 3: must divide --num-experts 8"));
    EXPECT_THAT(refused_dots("--moe-router-num-groups 2 --moe-router-group-topk 3"),
                HasSubstr("--moe-router-group-topk 3: must be from 1 to --moe-router-num-groups "
                          "2"));
    EXPECT_THAT(refused_dots("--moe-router-num-groups 4 --moe-router-group-topk 1"),
                HasSubstr("--moe-router-group-topk 1: these groups have 2 experts, but "
                          "--moe-router-topk is 3"));
    EXPECT_THAT(refused_dots("--moe-layer-freq 1,0,1"),
                HasSubstr("--moe-layer-freq: --model-type dots1 has layers without experts only "
                          "before"));
    EXPECT_THAT(
        refused_dots("--moe-ffn-hidden-size 12 --moe-shared-expert-intermediate-size 30"),
        HasSubstr("--moe-shared-expert-intermediate-size 30: --model-type dots1 needs a multiple "
                  "of the 12"));
    EXPECT_THAT(refused_dots("--moe-router-score-function softmax"),
                HasSubstr("--moe-router-score-function softmax: --model-type dots1 has sigmoid "
                          "scores; remove the flag"));
    EXPECT_THAT(refused_dots("--moe-router-bias-update-rate 0.1"),
                HasSubstr("--moe-router-bias-update-rate: needs --moe-router-enable-expert-bias"));
    const auto refused_mixtral = [](const std::string& flags) {
        return refused("--model-type mixtral --num-layers 2 " + flags);
    };
    EXPECT_THAT(refused_mixtral("--moe-router-enable-expert-bias"),
                HasSubstr("--moe-router-enable-expert-bias: --model-type mixtral has no "
                          "correction bias; remove the flag, or use dots1"));
    EXPECT_THAT(refused_mixtral("--moe-router-num-groups 2"),
                HasSubstr("--moe-router-num-groups: --model-type mixtral has no groups"));
    EXPECT_THAT(refused_mixtral("--moe-router-topk-scaling-factor 2"),
                HasSubstr("--moe-router-topk-scaling-factor: --model-type mixtral has no scaled"));
    EXPECT_THAT(refused("--model-type llama --moe-router-score-function sigmoid"),
                HasSubstr("--moe-router-score-function: --model-type llama has no experts"));
}

TEST(ModelFlags, RefuseLatentAttentionThatCannotBe) {
    for (const char* const flag :
         {"--kv-lora-rank 8", "--q-lora-rank 8", "--qk-head-dim 8", "--qk-pos-emb-head-dim 8",
          "--v-head-dim 8", "--multi-latent-attention"}) {
        EXPECT_THAT(refused(std::string("--model-type dots1 ") + flag),
                    HasSubstr(": --model-type dots1 has no latent attention; remove the flag"));
    }
    const auto refused_latents = [](const std::string& flags) {
        return refused("--model-type deepseek_v3 --num-layers 2 " + flags);
    };
    EXPECT_THAT(refused_latents("--kv-channels 64"),
                HasSubstr("--kv-channels 64: --model-type deepseek_v3 has heads of other sizes; "
                          "use --qk-head-dim"));
    EXPECT_THAT(refused_latents("--num-query-groups 2"),
                HasSubstr("--num-query-groups 2: --model-type deepseek_v3 has keys of its own"));
    EXPECT_THAT(refused_latents("--qk-pos-emb-head-dim 5"),
                HasSubstr("--qk-pos-emb-head-dim 5: --model-type deepseek_v3 has pairs"));
    EXPECT_THAT(refused_latents("--kv-lora-rank 0"), HasSubstr("--kv-lora-rank 0"));
    EXPECT_THAT(refused_latents("--ranks 2 --context-parallel-size 2"),
                HasSubstr("--context-parallel-size 2: latent attention (--model-type deepseek_v3) "
                          "needs whole sequences; use 1"));
    EXPECT_THAT(refused_latents("--num-attention-heads 65536 --qk-head-dim 65536"),
                HasSubstr("--qk-head-dim 65536: with --num-attention-heads 65536"));
    EXPECT_THAT(refused("--swiglu --normalization RMSNorm --position-embedding-type rope "
                        "--multi-latent-attention"),
                HasSubstr("--num-experts --multi-latent-attention (deepseek_v3)"));
}

TEST(ModelFlags, DescribeDeepSeekByItsParts) {
    const TempFolder folder;
    std::string text;
    for (int i = 0; i < 40; ++i) text += "a line of text " + std::to_string(i) + "\n";
    write_file(folder / "text.txt", text);
    const Outcome outcome =
        run_shell("cd '" + (folder / "") +
                  "' && '" VOCABPIPE_PROGRAM
                  "' data prepare --input text.txt --output set && '" TRAIN_GPT_PROGRAM
                  "' --transport threads --ranks 1 --data-path set --split 1,0,0 --swiglu "
                  "--normalization RMSNorm --position-embedding-type rope --num-experts 4 "
                  "--multi-latent-attention --q-lora-rank 6 --kv-lora-rank 8 --qk-head-dim 4 "
                  "--qk-pos-emb-head-dim 2 --v-head-dim 3 --num-layers 2 --hidden-size 16 "
                  "--ffn-hidden-size 24 --num-attention-heads 2 --vocab-size 257 --seq-length 8 "
                  "--micro-batch-size 1 --global-batch-size 1 --train-iters 1 --save run");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
    const ModelConfig saved = load_model_config(folder / "run/step-00000001");
    EXPECT_EQ(saved.family, "deepseek_v3");
    EXPECT_EQ(saved.latent.q_rank, 6);
    EXPECT_EQ(saved.latent.kv_rank, 8);
    EXPECT_EQ(saved.head_size(), 6);
    EXPECT_EQ(saved.rotary_dimension(), 2);
    EXPECT_EQ(saved.value_size(), 3);
}

TEST(ModelFlags, RefuseRotaryPercentThatTurnsNoColumn) {
    const std::string head = "--model-type gpt_neox --hidden-size 64 --num-attention-heads 4 ";
    EXPECT_THAT(refused(head + "--rotary-percent 0.05"),
                HasSubstr("--rotary-percent 0.05: turns 0 of the 16 columns of a head"));
    EXPECT_THAT(refused("--model-type gpt_neox --hidden-size 28 --num-attention-heads 4 "
                        "--rotary-percent 1"),
                HasSubstr("turns 7 of the 7 columns of a head"));
    EXPECT_THAT(refused(head + "--rotary-percent 1.5"), HasSubstr("--rotary-percent 1.5"));
    EXPECT_THAT(refused(head + "--rotary-percent 0"), HasSubstr("--rotary-percent 0"));
}

TEST(ModelFlags, RefuseSizesBeforeAnythingFollowsFromThem) {
    EXPECT_THAT(refused("--model-type gemma2 --num-layers -1"), HasSubstr("--num-layers -1"));
    EXPECT_THAT(refused("--hidden-size 9223372036854775807"), HasSubstr("--hidden-size"));
    EXPECT_THAT(refused("--model-type llama --num-attention-heads 65536 --kv-channels 65536"),
                HasSubstr("--kv-channels 65536: with --num-attention-heads 65536"));
}

TEST(ModelFlags, SayHowManyPositionsAModelOfAFileHas) {
    const TempFolder folder;
    write_file(folder / "config.json",
               R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 16, "n_embd": 32,
                   "n_layer": 2, "n_head": 2})");
    EXPECT_THAT(refused("--seq-length 32 --model '" + (folder / "config.json") + "'"),
                HasSubstr("has 16 positions; use at most 16"));
}

}  // namespace
}  // namespace vocabpipe::testing
