// SPDX-License-Identifier: Apache-2.0
// The command of a row says all that the row is.
#include "src/model/parameter_groups.hpp"
#include "tests/plan/plan_cases.hpp"
#include "tests/schedule/small_profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// A row of a pipeline over all GPUs.
Candidate of_pipeline(std::vector<int> layers) {
    Candidate candidate{.schedule = "1f1b",
                        .vocab_mode = VocabMode::one_barrier,
                        .layers_per_stage = std::move(layers),
                        .microbatches = 16};
    candidate.mesh.pipeline = 4;
    return candidate;
}

std::string command_of(const Candidate& candidate, const PlanOptions& options = small_plan()) {
    return train_command(options, candidate);
}

TEST(TrainCommand, LeavesOutWhatTrainGptDoesByItself) {
    EXPECT_EQ(command_of(of_pipeline({2, 2, 2, 2})),
              "mpirun -np 4 train_gpt --model small --pipeline-model-parallel-size 4 --schedule "
              "1f1b --vocab-mode one_barrier --schedule-costs auto --seq-length 1024 "
              "--micro-batch-size 1 --global-batch-size 16 --dtype bf16 --device cuda --data-path "
              "PREFIX");
}

TEST(TrainCommand, SaysEverySizeOfTheMesh) {
    Candidate candidate = of_pipeline({4, 4});
    candidate.mesh = {.pipeline = 2, .data = 3, .tensor = 2, .expert = 6};
    candidate.expert_tensor = 2;
    candidate.micro_batch_size = 2;
    candidate.recompute = Recompute::selective;
    PlanOptions options = small_plan();
    options.gpus = 12;
    options.global_batch_size = 24;
    options.receive_ahead = 2;
    const std::string command = command_of(candidate, options);
    for (const char* part :
         {"mpirun -np 12 --hostfile HOSTS train_gpt ", " --pipeline-model-parallel-size 2 ",
          " --tensor-model-parallel-size 2 ", " --expert-model-parallel-size 3 ",
          " --expert-tensor-parallel-size 2 ", " --micro-batch-size 2 ", " --global-batch-size 24 ",
          " --recompute-granularity selective ", " --receive-ahead 2 "}) {
        EXPECT_THAT(command, HasSubstr(part));
    }
}

TEST(TrainCommand, NamesAFileOfHostsWhereOneHasTooFewGpus) {
    PlanOptions options = small_plan();
    ASSERT_EQ(options.device.gpus_per_node.value, 8);
    options.gpus = 8;
    EXPECT_THAT(command_of(of_pipeline({2, 2, 2, 2}), options),
                StartsWith("mpirun -np 8 train_gpt --model "));
    options.gpus = 9;
    EXPECT_THAT(command_of(of_pipeline({2, 2, 2, 2}), options),
                StartsWith("mpirun -np 9 --hostfile HOSTS train_gpt --model "));
}

TEST(TrainCommand, BlocksWhatTeamsExchangeIfPlannedSo) {
    PlanOptions options = small_plan();
    options.trainer.blocking_exchanges = true;
    Candidate candidate = of_pipeline({4, 4});
    EXPECT_THAT(command_of(candidate, options), Not(HasSubstr("--blocking-exchanges")));
    candidate.mesh = {.pipeline = 2, .tensor = 2};
    EXPECT_THAT(command_of(candidate, options), HasSubstr(" --blocking-exchanges "));
}

TEST(TrainCommand, GivesALayoutWhereTheSplitIsNotItsOwn) {
    const auto layout = [](const std::vector<int>& layers, VocabMode mode) {
        Candidate candidate = of_pipeline(layers);
        candidate.vocab_mode = mode;
        for (const TrainFlag& flag : train_flags_of(small_plan(), candidate)) {
            if (flag.name == "--pipeline-model-parallel-layout") return flag.value;
        }
        return std::string("none");
    };
    EXPECT_EQ(layout({2, 2, 2, 2}, VocabMode::none), "none");
    EXPECT_EQ(layout({1, 2, 2, 3}, VocabMode::none), "Et|tt|tt|tttL");
    EXPECT_EQ(layout({1, 2, 2, 3}, VocabMode::interlaced), "Vt|tt|tt|tttV");
    // What balances the output layer depends on costs, and so does train_gpt's own split.
    EXPECT_EQ(layout({2, 2, 2, 2}, VocabMode::redistributed), "Ett|tt|tt|ttL");
    PlanOptions few = small_plan();
    few.model.config.num_layers = 3;
    EXPECT_THAT(command_of(of_pipeline({1, 1, 1, 0}), few),
                HasSubstr(" --pipeline-model-parallel-layout 'Vt|t|t|V' "));
}

TEST(TrainCommand, SaysChunksAndLimitsThatAreNotTheFamilysOwn) {
    Candidate candidate = of_pipeline({1, 1, 1, 1, 1, 1, 1, 1});
    candidate.schedule = "zb-v";
    candidate.chunks = 2;
    EXPECT_THAT(command_of(candidate), Not(HasSubstr("--chunks")));
    EXPECT_THAT(command_of(candidate), Not(HasSubstr("--memory-limit")));
    candidate.schedule = "interleaved";
    candidate.memory_limit = 7;
    EXPECT_THAT(command_of(candidate), HasSubstr("--schedule interleaved --memory-limit 7 "));
    candidate = of_pipeline(std::vector<int>(16, 1));
    candidate.schedule = "interleaved";
    candidate.chunks = 4;
    PlanOptions options = small_plan();
    options.model.config.num_layers = 16;
    EXPECT_THAT(command_of(candidate, options), HasSubstr("--schedule interleaved --chunks 4 "));
}

TEST(TrainCommand, HasTheParameterGroupsInTheirOrder) {
    PlanOptions options = small_plan();
    use_parameter_groups(
        options, {parse_parameter_group("*.attn.*:lr_mult=1"), parse_parameter_group("*:freeze")});
    EXPECT_THAT(command_of(of_pipeline({2, 2, 2, 2}), options),
                HasSubstr(" --param-group '*.attn.*:lr_mult=1' --param-group '*:freeze' "));
}

TEST(TrainCommand, NamesModelsAsTheyWereNamed) {
    PlanOptions options = small_plan();
    options.model = load_model("llama-3.2-1b");
    EXPECT_THAT(command_of(of_pipeline({4, 4, 4, 4}), options),
                HasSubstr(" --model llama-3.2-1b --pipeline"));
    options.model.config.vocab_size = 32000;
    EXPECT_THAT(command_of(of_pipeline({4, 4, 4, 4}), options),
                HasSubstr(" --model llama-3.2-1b --vocab-size 32000 --pipeline"));
    options.model.source = "my models/it's.json";
    EXPECT_THAT(command_of(of_pipeline({4, 4, 4, 4}), options),
                HasSubstr(" --model 'my models/it'\\''s.json' --vocab-size"));
}

TEST(TrainCommand, OfAProfileHasItsSizesAndItsDevice) {
    PlanOptions options = small_plan();
    Profile profile = small_profile();
    profile.costs.communication = CommunicationOrder::lanes;
    use_profile(options, profile);
    options.gpus = 64;
    const ModelConfig& config = options.model.config;
    Candidate candidate = of_pipeline({});
    candidate.layers_per_stage.assign(2, config.num_layers / 2);
    candidate.mesh.pipeline = 2;
    const std::string command = command_of(candidate, options);
    EXPECT_THAT(
        command,
        HasSubstr("mpirun -np 64 train_gpt --num-layers " + std::to_string(config.num_layers) +
                  " --hidden-size " + std::to_string(config.hidden_size) + " --ffn-hidden-size " +
                  std::to_string(config.ffn_hidden_size) + " --num-attention-heads " +
                  std::to_string(config.num_attention_heads)));
    EXPECT_EQ(command.find("--untie") != std::string::npos, !config.tied);
    EXPECT_THAT(command, Not(HasSubstr("--device")));
    options.profile->costs.communication = CommunicationOrder::streams;
    EXPECT_THAT(command_of(candidate, options), EndsWith(" --device cuda --data-path PREFIX"));
}

}  // namespace
}  // namespace vocabpipe::testing
