// SPDX-License-Identifier: Apache-2.0
#include "src/train/options/check_options.hpp"

#include "src/train/run/resume.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

namespace vocabpipe::testing {
namespace {

TEST(SharedFlags, DifferWithWhatOnlyAConfigJsonSays) {
    TrainOptions options;
    set_family(options.model, "llama");
    const std::vector<std::string> before = shared_flags(options);
    EXPECT_EQ(before, shared_flags(options));
    options.model.attention_output_bias = options.model.qkv_bias = true;
    EXPECT_NE(before, shared_flags(options));
}

TEST(SharedFlags, AndWhatASavedStepRecordsDifferWithTheContentsOfProductChoices) {
    TrainOptions options;
    options.gpu.product_choices_file = "choices";
    options.gpu.product_choices = "one";
    TrainOptions others = options;
    others.gpu.product_choices_file = "copy of choices";
    EXPECT_EQ(shared_flags(options), shared_flags(others));
    EXPECT_EQ(bit_flags(options), bit_flags(others));
    others.gpu.product_choices = "two";
    EXPECT_NE(shared_flags(options), shared_flags(others));
    EXPECT_NE(bit_flags(options), bit_flags(others));
}

TEST(SavedFlags, RecordTheFormAndTheNumberOfContextRanks) {
    using ::testing::Contains;
    TrainOptions options;
    options.context_form = ContextForm::a2a;
    const std::vector<std::string> flags = bit_flags(options, {.pipeline = 2, .context = 3});
    EXPECT_THAT(flags, Contains("context-ranks 3"));
    EXPECT_THAT(flags, Contains("--cp-comm-type a2a"));
    EXPECT_THAT(bit_flags(options, {}), Contains("context-ranks 1"));
}

/// Two layers of four heads, of sequences of 24 tokens in twelve microbatches.
TrainOptions small_run(int tensor, int context, int pipeline = 0) {
    TrainOptions options;
    options.model.num_layers = 2;
    options.model.hidden_size = options.model.ffn_hidden_size = 32;
    options.model.num_attention_heads = 4;
    options.model.seq_length = options.model.max_position_embeddings = 24;
    options.model.vocab_size = 101;
    options.global_batch_size = 12;
    options.tensor_model_parallel_size = tensor;
    options.context_parallel_size = context;
    options.pipeline_model_parallel_size = pipeline;
    return options;
}

/// Empty: the options are right.
std::string refusal(const TrainOptions& options, int ranks) {
    try {
        check_options(options, ranks);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

TEST(ContextRankOptions, GiveTheRanksThatTheyLeaveToThePipelineOrToReplicas) {
    EXPECT_EQ(mesh_of(small_run(1, 2), 4), (Mesh{.pipeline = 2, .context = 2}));
    EXPECT_EQ(mesh_of(small_run(2, 3, 1), 12), (Mesh{.data = 2, .tensor = 2, .context = 3}));
    EXPECT_EQ(mesh_of(small_run(1, 4, 2), 16), (Mesh{.pipeline = 2, .data = 2, .context = 4}));
    EXPECT_EQ(refusal(small_run(1, 2), 4), "");
    EXPECT_EQ(refusal(small_run(2, 3, 1), 12), "");
}

TEST(ContextRankOptions, RefuseSizesThatDoNotDivideTheRanks) {
    for (const auto& [tensor, context, pipeline, text] :
         {std::tuple(1, 3, 0, "--context-parallel-size 3: must divide the number of ranks, 8"),
          {2, 8, 0,
           "--context-parallel-size 8: with --tensor-model-parallel-size 2, must divide the 4 "
           "groups of 2 among 8 ranks"},
          {1, 2, 3,
           "--pipeline-model-parallel-size 3: with --context-parallel-size 2, must divide the 4 "
           "groups of 2 among 8 ranks"},
          {2, 2, 4,
           "--pipeline-model-parallel-size 4: with --tensor-model-parallel-size 2 and "
           "--context-parallel-size 2, must divide the 2 groups of 4 among 8 ranks"}}) {
        EXPECT_EQ(refusal(small_run(tensor, context, pipeline), 8), text);
    }
    EXPECT_EQ(refusal(small_run(1, 0), 8).find("--context-parallel-size 0: must be "), 0U);
    EXPECT_EQ(refusal(small_run(1, -2), 8).find("--context-parallel-size -2: must be "), 0U);
}

TEST(ContextRankOptions, RefuseSequencesAndHeadsThatDoNotDivide) {
    EXPECT_EQ(refusal(small_run(1, 8), 8),
              "--context-parallel-size 8: every rank has two equal segments of a sequence, so "
              "--seq-length 24 must be a multiple of 16");
    TrainOptions options = small_run(2, 4, 1);
    EXPECT_EQ(refusal(options, 8), "");
    options.context_form = ContextForm::a2a;
    EXPECT_EQ(refusal(options, 8),
              "--cp-comm-type a2a: --context-parallel-size 4 must divide the 2 key/value heads of "
              "a rank; use a divisor, or --cp-comm-type allgather");
    options = small_run(2, 2, 1);
    options.context_form = ContextForm::a2a;
    EXPECT_EQ(refusal(options, 4), "");
    set_family(options.model, "llama");
    options.model.num_query_groups = 2;
    EXPECT_EQ(refusal(options, 4),
              "--cp-comm-type a2a: --context-parallel-size 2 must divide the 1 key/value heads of "
              "a rank; use a divisor, or --cp-comm-type allgather");
    options.context_parallel_size = 1;
    EXPECT_EQ(refusal(options, 2), "") << "one rank exchanges nothing";
}

TEST(ContextRankOptions, RefuseTokensThatTensorRanksCannotShare) {
    TrainOptions options = small_run(4, 4, 1);
    options.model.seq_length = options.model.max_position_embeddings = 8;
    EXPECT_EQ(refusal(options, 16).find("--tensor-model-parallel-size 4: "), 0U)
        << "2 tokens of a context rank";
    options.micro_batch_size = 2;
    EXPECT_EQ(refusal(options, 16), "");
}

TEST(ContextRankOptions, RefuseProfilesWhichDoNotKnowThem) {
    TrainOptions options = small_run(1, 2);
    options.profile = "p.json";
    EXPECT_EQ(refusal(options, 4),
              "--context-parallel-size 2: --profile describes ranks without context ranks; remove "
              "--profile");
    options.profile.clear();
    options.cost_file = "p.json";
    EXPECT_EQ(refusal(options, 4),
              "--context-parallel-size 2: profiles describe ranks without context ranks; use "
              "--schedule-costs auto or F,B");
}

TEST(ContextRankOptions, RefuseExpertRanksThatNeitherHoldNorFillTheTeams) {
    TrainOptions options = small_run(1, 2, 1);
    set_family(options.model, "mixtral");
    options.model.moe.experts = 6;
    options.global_batch_size = 12;
    for (const int expert : {1, 2, 6}) {
        options.expert_model_parallel_size = expert;
        EXPECT_EQ(refusal(options, 12), "") << expert;
    }
    options.expert_model_parallel_size = 3;
    EXPECT_EQ(refusal(options, 12),
              "--expert-model-parallel-size 3: must be a divisor or a multiple of "
              "--tensor-model-parallel-size 1, and of it times --context-parallel-size 2; use 1");
    options.expert_model_parallel_size = 8;
    EXPECT_EQ(refusal(options, 12),
              "--expert-model-parallel-size 8: must divide replicas x context ranks x tensor "
              "ranks, which are 6 x 2 x 1; use a divisor of 12, or a smaller "
              "--pipeline-model-parallel-size");
}

TEST(LossOptions, OfPairsNeedEvenSteps) {
    TrainOptions options = small_run(1, 1);
    options.loss.name = LossName::dpo;
    options.data.columns = "c.npy";
    EXPECT_EQ(refusal(options, 1), "");
    options.ramp_up = BatchSizeRampUp{2, 2, 10};
    EXPECT_EQ(refusal(options, 1), "");
    const std::string even = "; use an even START and INCREMENT of --rampup-batch-size";
    options.ramp_up = BatchSizeRampUp{3, 3, 10};
    EXPECT_EQ(refusal(options, 1), "--loss dpo: two samples are a pair, but a step has 3" + even);
    options.ramp_up = BatchSizeRampUp{2, 5, 10};
    EXPECT_EQ(refusal(options, 1), "--loss dpo: two samples are a pair, but a step has 7" + even);
    options.ramp_up.reset();
    options.global_batch_size = 11;
    EXPECT_EQ(refusal(options, 1),
              "--loss dpo: two samples are a pair, but a step has 11; use an even "
              "--global-batch-size");
    options.data.subset = "s.txt";
    EXPECT_EQ(refusal(options, 1),
              "--data-subset: cannot be used with --loss dpo, whose samples are pairs; remove it");
    options.evaluation.skip_train = true;
    options.evaluation.multiple_choice_path = "m.bin";
    EXPECT_EQ(refusal(options, 1), "") << "nothing is trained";
    options = small_run(1, 1);
    options.loss.dpo_beta = 0.5F;
    EXPECT_EQ(refusal(options, 1),
              "--dpo-beta: is a term of --loss dpo, but the loss is the cross-entropy; set it, or "
              "remove the flag");
}

TEST(RunOptions, ThatNeedOthersOrExcludeThemAreRefused) {
    const std::vector<std::pair<std::string, void (*)(TrainOptions&)>> table{
        {"", [](TrainOptions& o) { o.verify_steps = o.train_iters; }},
        {"", [](TrainOptions& o) { o.replay_interval = 1; }},
        {"", [](TrainOptions& o) { o.verify_steps = o.verify_ranks = 1; }},
        {"",
         [](TrainOptions& o) {
             o.save = "s";
             o.save_interval = o.save_total_limit = 1;
             o.async_save = true;
         }},
        {"",
         [](TrainOptions& o) {
             o.load = "l";
             o.finetune = true;
         }},
        {"",
         [](TrainOptions& o) {
             o.evaluation.skip_train = true;
             o.data.valid_path = {"v"};
         }},
        {"",
         [](TrainOptions& o) {
             o.evaluation.skip_train = true;
             o.data.split = "9,1,0";
         }},
        {"--skip-train: there is nothing to evaluate; set --valid-data-path, --split with a "
         "validation part, or --multiple-choice-path",
         [](TrainOptions& o) { o.evaluation.skip_train = true; }},
        {"--skip-train: there is nothing to evaluate; set --valid-data-path, --split with a "
         "validation part, or --multiple-choice-path",
         [](TrainOptions& o) {
             o.evaluation.skip_train = true;
             o.data.split = "9,0,1";
         }},
        {"--skip-train: there is nothing to evaluate; set --valid-data-path, --split with a "
         "validation part, or --multiple-choice-path",
         [](TrainOptions& o) {
             o.evaluation.skip_train = true;
             o.evaluation.iters = 0;
             o.data.valid_path = {"v"};
         }},
        {"--report r: only training writes this; remove it or --skip-train",
         [](TrainOptions& o) {
             o.evaluation.skip_train = true;
             o.data.valid_path = {"v"};
             o.report = "r";
         }},
        {"--verify-against-one-rank 1: there is no training to verify; remove it or --skip-train",
         [](TrainOptions& o) {
             o.evaluation.skip_train = true;
             o.data.valid_path = {"v"};
             o.verify_steps = 1;
         }},
        {"--replay-steps 1: there are no steps to replay; remove it or --skip-train",
         [](TrainOptions& o) {
             o.evaluation.skip_train = true;
             o.data.valid_path = {"v"};
             o.replay_interval = 1;
         }},
        {"--replay-steps 1: compares bits, which --nondeterministic-attention changes each time; "
         "remove one of them",
         [](TrainOptions& o) {
             o.gpu.nondeterministic_attention = true;
             o.replay_interval = 1;
         }},
        {"--verify-against-one-rank 101: must be at most the number of steps, 100",
         [](TrainOptions& o) { o.verify_steps = 101; }},
        {"--verify-ranks 1: requires --verify-against-one-rank STEPS",
         [](TrainOptions& o) { o.verify_ranks = 1; }},
        {"--save-interval 1: requires --save DIR", [](TrainOptions& o) { o.save_interval = 1; }},
        {"--save-total-limit 1: requires --save DIR",
         [](TrainOptions& o) { o.save_total_limit = 1; }},
        {"--async-save: requires --save DIR", [](TrainOptions& o) { o.async_save = true; }},
        {"--finetune: requires --load DIR, which holds the initial weights",
         [](TrainOptions& o) { o.finetune = true; }},
        {"--reshard-after step: requires --zero-stage 2 or 3",
         [](TrainOptions& o) { o.zero.reshard_after = ReshardAfter::step; }},
        {"--blocking-exchanges: there are no tensor, context or expert ranks that exchange "
         "anything; leave it out",
         [](TrainOptions& o) { o.blocking_exchanges = true; }},
        {"--global-batch-size 12: must be a multiple of --micro-batch-size 5",
         [](TrainOptions& o) { o.micro_batch_size = 5; }},
        {"--num-layers 0: must be at least 1", [](TrainOptions& o) { o.model.num_layers = 0; }},
        {"--decoder-first-pipeline-num-layers 3: must be at most 2",
         [](TrainOptions& o) { o.end_layers.first = 3; }},
        {"--decoder-last-pipeline-num-layers 3: must be at most 2",
         [](TrainOptions& o) { o.end_layers.last = 3; }}};
    for (const auto& [says, change] : table) {
        TrainOptions options = small_run(1, 1);
        change(options);
        EXPECT_EQ(refusal(options, 1), says);
    }
}

TEST(LossOptions, BelongToALossThatReadsThem) {
    TrainOptions options = small_run(1, 1);
    EXPECT_EQ(refusal(options, 1), "");
    options.data.columns = "c.npy";
    EXPECT_EQ(refusal(options, 1),
              "--columns c.npy: --loss cross-entropy reads no columns; remove the flag, or set "
              "--loss grpo, distillation or dpo");
    options.loss.name = LossName::grpo;
    EXPECT_EQ(refusal(options, 1), "");
    options.data.columns.clear();
    EXPECT_EQ(refusal(options, 1),
              "--loss grpo: reads advantages, old_log_probs of every token; set --columns FILE");
    options.loss.policy.kl_coefficient = 0.1F;
    EXPECT_EQ(refusal(options, 1),
              "--loss grpo: reads advantages, old_log_probs, ref_log_prob of every token; set "
              "--columns FILE");
    options.loss.name = LossName::cross_entropy;
    EXPECT_THAT(refusal(options, 1), ::testing::HasSubstr("are terms of --loss grpo"));
    options.loss = {.name = LossName::distillation, .distillation = {.top_k = 3}};
    EXPECT_EQ(refusal(options, 1),
              "--loss distillation: reads top_logprobs, top_ids of every token; set --columns "
              "FILE");
    options.loss = {.name = LossName::grpo, .distillation = {.top_k = 3}};
    EXPECT_THAT(refusal(options, 1), ::testing::HasSubstr("are terms of --loss distillation, but "
                                                          "the loss is grpo"));
    options.loss = {.policy = {.clip_low = 2}};
    EXPECT_THAT(refusal(options, 1), ::testing::HasSubstr("--grpo-clamp-eps-lower 2"));
}

}  // namespace
}  // namespace vocabpipe::testing
