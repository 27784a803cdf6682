// SPDX-License-Identifier: Apache-2.0
// Profiles of this machine under a tiny model: complete, and fit for what they are made for.
#include "src/train/profile/profile_machine.hpp"

#include "src/train/plan/training_plan.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/simulate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>
#include <utility>

namespace vocabpipe {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TrainOptions tiny() {
    TrainOptions options;
    options.model.num_layers = 5;
    options.model.hidden_size = 32;
    options.model.ffn_hidden_size = 64;
    options.model.num_attention_heads = 2;
    options.model.seq_length = options.model.max_position_embeddings = 16;
    options.model.vocab_size = 101;
    options.micro_batch_size = 2;
    options.global_batch_size = 8;
    options.threads_per_rank = 1;
    options.train_iters = 3;
    options.command = "a test";
    options.date = "today";
    return options;
}

Profile profile(int ranks, const TrainOptions& options) {
    Profile result;
    std::mutex mutex;
    World::threads(ranks, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
        Profile mine = profile_machine(communicator, options);
        const std::lock_guard lock(mutex);
        result = std::move(mine);
    });
    return result;
}

std::vector<RankPlacement> on_one_host(int ranks) {
    return std::vector<RankPlacement>(static_cast<size_t>(ranks),
                                      {.host = "here", .cores = 2, .ranks_on_host = ranks});
}

TEST(ProfileMachine, RefusesContextAndExpertRanks) {
    const auto refused = [](const TrainOptions& options, const char* why) {
        EXPECT_THAT([&] { (void)profile(4, options); }, ThrowsMessage<AgreedError>(HasSubstr(why)));
    };
    TrainOptions options = tiny();
    options.context_parallel_size = 2;
    refused(options, "--context-parallel-size 2: profiles describe ranks without context ranks");
    options = tiny();
    set_family(options.model, "mixtral");
    options.model.tied = false;
    options.model.moe = {.experts = 4, .top_k = 2};
    options.pipeline_model_parallel_size = 2;
    options.expert_model_parallel_size = 2;
    refused(options,
            "--expert-model-parallel-size 2: profiles describe ranks without expert ranks");
    std::swap(options.expert_model_parallel_size, options.expert_tensor_parallel_size);
    refused(options,
            "--expert-tensor-parallel-size 2: profiles describe ranks without expert ranks");
}

TEST(ProfileMachine, MeasuresEveryPassOfEveryStageAndShard) {
    for (const char* family : {"1f1b", "interleaved", "zb-h1"}) {
        TrainOptions options = tiny();
        options.schedule = family;
        const Profile p = profile(2, options);
        EXPECT_TRUE(p.derived.empty());
        for (const TableCosts::OpCosts& costs : p.costs.stage_ns) {
            for (const Op op : {Op::F, Op::B, Op::I, Op::W}) {
                EXPECT_GT(costs[static_cast<size_t>(op)], 1) << family << traits(op).name;
            }
        }
        ASSERT_EQ(p.costs.rank_ns.size(), 2U);
        for (const TableCosts::OpCosts& costs : p.costs.rank_ns) {
            for (const Op op : {Op::E, Op::G, Op::S, Op::T, Op::Report, Op::Update}) {
                EXPECT_GT(costs[static_cast<size_t>(op)], 0) << family << traits(op).name;
            }
        }
        EXPECT_GT(p.costs.latency_ns, 0);
        EXPECT_GT(p.costs.bytes_per_ns, 0);
        EXPECT_EQ(p.model.layers, 5);
        EXPECT_EQ(p.stages(), std::string(family) == "interleaved" ? 4 : 2);
        EXPECT_EQ(p.command, "a test");
        EXPECT_EQ(p.persistent.size(), 2U);
        EXPECT_GT(p.persistent[0].optimizer, p.persistent[0].weights);
    }
}

TEST(ProfileMachine, MakesAFileThatARunOfTheSameFlagsIsBuiltFrom) {
    TrainOptions options = tiny();
    const Profile p = profile(2, options);
    const std::string path =
        (std::filesystem::path(::testing::TempDir()) / "machine_profile.json").string();
    write_profile(path, p);

    options.schedule_costs.reset();
    options.cost_file = path;
    const TrainingPlan plan(options, on_one_host(2));
    EXPECT_EQ(plan.costs().stage_ns, p.costs.stage_ns);
    EXPECT_GT(simulate(plan.steps().front().lowered.all(), plan.costs()).summary.step_ns, 0);
    const TrainingPlan on_gpus(options, on_one_host(2), kernels::host::operators(),
                               CommunicationOrder::launches);
    EXPECT_EQ(on_gpus.costs().communication, CommunicationOrder::launches) << "whatever measured";

    const auto refusal_of = [&](auto change) {
        TrainOptions other = options;
        change(other);
        return [other] { (void)TrainingPlan(other, on_one_host(2)); };
    };
    EXPECT_THAT(refusal_of([](TrainOptions& o) { o.model.num_layers = 6; }),
                ThrowsMessage<UsageError>(HasSubstr("different layers per stage; measure with")));
    EXPECT_THAT(refusal_of([](TrainOptions& o) { o.micro_batch_size = 4; }),
                ThrowsMessage<UsageError>(HasSubstr("tokens per microbatch 32, not 64")));
    EXPECT_THAT(refusal_of([](TrainOptions& o) { o.model.ffn_hidden_size += 8; }),
                ThrowsMessage<UsageError>(HasSubstr("feed-forward size")));
    EXPECT_THAT(refusal_of([](TrainOptions& o) { set_family(o.model, "llama"); }),
                ThrowsMessage<UsageError>(HasSubstr("different weights in the model")));
    EXPECT_THAT(refusal_of([](TrainOptions& o) { o.vocab_mode = VocabMode::none; }),
                ThrowsMessage<UsageError>(HasSubstr("different embedding rows per rank")));
    EXPECT_THAT(refusal_of([](TrainOptions& o) {
                    o.schedule = "interleaved";
                    o.rule.chunks = 2;
                }),
                ThrowsMessage<UsageError>(HasSubstr("stages 2, not 4")));
    EXPECT_THAT(refusal_of([](TrainOptions& o) { o.cost_file = "/no/such.json"; }),
                ThrowsMessage<InputFileError>(HasSubstr("/no/such.json: cannot be read")));
}

TEST(ProfileMachine, OfTensorRanksHoldsForAsManyOfThem) {
    TrainOptions options = tiny();
    options.tensor_model_parallel_size = 2;
    const Profile p = profile(4, options);
    EXPECT_EQ(p.sizes.tensor, 2);
    EXPECT_EQ(p.ranks(), 2);
    EXPECT_EQ(p.persistent.size(), 2U);
    const std::string path =
        (std::filesystem::path(::testing::TempDir()) / "tensor_profile.json").string();
    write_profile(path, p);
    options.schedule_costs.reset();
    options.cost_file = path;
    const TrainingPlan plan(options, on_one_host(4));
    EXPECT_EQ(plan.costs().stage_ns, p.costs.stage_ns);
    EXPECT_GT(simulate(plan.steps().front().lowered.all(), plan.costs()).summary.step_ns, 0);
    options.tensor_model_parallel_size = 1;
    EXPECT_THAT([&] { (void)TrainingPlan(options, on_one_host(2)); },
                ThrowsMessage<UsageError>(
                    HasSubstr("was measured with --tensor-model-parallel-size 2, not 1; measure")));
}

TEST(ProfileMachine, EndsOnAllRanksForFlagsThatCannotWork) {
    TrainOptions options = tiny();
    options.model.num_attention_heads = 3;
    EXPECT_THAT([&] { (void)profile(2, options); },
                ThrowsMessage<AgreedError>(HasSubstr("--num-attention-heads 3")));
}

TEST(TrainingPlan, TakesChunksFromTheLayersOfOne) {
    TrainOptions options = tiny();
    options.schedule = "interleaved";
    options.model.num_layers = 12;
    options.layers_per_chunk = 2;
    EXPECT_EQ(TrainingPlan(options, on_one_host(2)).schedule().stages, 6);
    options.model.num_layers = 10;
    EXPECT_THAT([&] { (void)TrainingPlan(options, on_one_host(2)); },
                ThrowsMessage<UsageError>(HasSubstr("--num-layers 10 is not a multiple of 4")));
}

TEST(TrainingPlan, RefusesStagesWithoutLayers) {
    TrainOptions options = tiny();
    options.schedule = "interleaved";
    options.rule.chunks = 3;
    EXPECT_THAT([&] { (void)TrainingPlan(options, on_one_host(2)); },
                ThrowsMessage<UsageError>(HasSubstr(
                    "--num-layers 5: must be at least the number of stages, 6 (interleaved, 3")));
}

}  // namespace
}  // namespace vocabpipe
