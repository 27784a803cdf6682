// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/trained_rank.hpp"

#include "benchmarks/written_layers.hpp"
#include "src/step/random_batch.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/support/schedule_cases.hpp"
#include "tests/train/samples_of_lengths.hpp"
#include "vocabpipe/checkpoint.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Throws;
using ::testing::ThrowsMessage;

const ModelConfig& model() {
    static const ModelConfig config = tiny_gpt(4, {.vocab_size = 53});
    return config;
}

StepPlan plan(int ranks, StepWork work = {.microbatches = 4, .micro_batch_size = 2}) {
    return plan_step(model(), {.ranks = ranks}, {}, work);
}

/// Calls `body` with every rank of a world of threads.
void on_ranks(const StepPlan& plan, const TrainedRankOptions& options,
              const std::function<void(TrainedRank&)>& body) {
    World::threads(plan.mesh().size(), {.timeout_seconds = 30}).run([&](Communicator& world) {
        const std::unique_ptr<Device> device = make_host_device();
        TrainedRank rank(world, *device, plan, options);
        body(rank);
    });
}

/// Losses of the steps up to `last`, each of which has a batch of its own.
std::vector<double> train(TrainedRank& rank, int64_t last) {
    std::vector<double> losses;
    while (rank.position().step < last) {
        const RandomBatch batch(model(), 2, 4, static_cast<uint64_t>(rank.position().step) + 1);
        rank.train_step(batch.microbatches(), batch.counted_tokens(), 1e-2);
        losses.push_back(rank.report().loss);
    }
    return losses;
}

TEST(TrainedRank, LearnsOneBatch) {
    on_ranks(plan(2), {}, [](TrainedRank& rank) {
        const RandomBatch batch(model(), 2, 4, 1);
        std::vector<double> losses;
        for (int step = 0; step < 20; ++step) {
            rank.train_step(batch.microbatches(), batch.counted_tokens(), 1e-2);
            losses.push_back(rank.report().loss);
        }
        EXPECT_LT(losses.back(), losses.front() - 1);
        EXPECT_EQ(rank.position().step, 20);
        EXPECT_EQ(rank.position().consumed_samples, 20 * 8);
        EXPECT_FALSE(rank.parameters().empty());
    });
}

TEST(TrainedRank, OfAContextTeamWantsTheWeightOfTheWholeMicrobatch) {
    ModelConfig config = model();
    config.seq_length = config.max_position_embeddings = 8;
    const StepPlan two = plan_step(config, {.context = 2}, {}, {.micro_batch_size = 2});
    ModelConfig half = config;
    half.seq_length /= 2;
    on_ranks(two, {}, [&](TrainedRank& rank) {
        const RandomBatch batch(half, 2, 1, 1);
        EXPECT_THAT([&] { rank.train_step(batch.microbatches(), batch.counted_tokens(), 1e-2); },
                    ThrowsMessage<UsageError>(HasSubstr("set Microbatch::loss_weight")));
        EXPECT_EQ(rank.position().step, 0);
        Microbatch weighed = batch.microbatches().front();
        weighed.loss_weight = 1;
        rank.train_step(std::span(&weighed, 1), batch.counted_tokens(), 1e-2);
        EXPECT_EQ(rank.position().consumed_samples, 2);
    });
}

TEST(TrainedRank, GoesOnFromASavedStepAtAnotherNumberOfRanks) {
    const std::string folder = ::testing::TempDir() + "/trained_rank_steps";
    std::filesystem::remove_all(folder);
    std::vector<double> whole;
    on_ranks(plan(2), {}, [&](TrainedRank& rank) {
        const std::vector<double> losses = train(rank, 6);
        if (rank.communicator().rank() == 0) whole = losses;
    });
    on_ranks(plan(2), {}, [&](TrainedRank& rank) {
        EXPECT_FALSE(load_step(rank, folder));
        EXPECT_EQ(rank.position().step, 0);
        (void)train(rank, 3);
        save_step(rank, folder);
    });
    for (const bool initialise : {true, false}) {
        on_ranks(plan(1), {.initialise = initialise}, [&](TrainedRank& rank) {
            EXPECT_TRUE(load_step(rank, folder));
            EXPECT_EQ(rank.position().step, 3);
            EXPECT_EQ(rank.position().consumed_samples, 3 * 8);
            const std::vector<double> rest = train(rank, 6);
            ASSERT_EQ(rest.size(), 3U);
            for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(rest[i], whole[i + 3], 1e-5);
        });
    }
}

TEST(TrainedRank, RunsSeveralPlansOfTheSameModel) {
    const StepPlan training = plan(2);
    const StepPlan smaller = plan(2, {.microbatches = 2, .micro_batch_size = 2});
    World::threads(2, {.timeout_seconds = 30}).run([&](Communicator& world) {
        const std::unique_ptr<Device> device = make_host_device();
        const std::vector<StepPlan> plans{training, smaller};
        TrainedRank rank(world, *device, plans);
        const RandomBatch two(model(), 2, 2, 1);
        rank.train_step(two.microbatches(), two.counted_tokens(), 1e-2, {.plan = 1});
        const RandomBatch four(model(), 2, 4, 1);
        rank.train_step(four.microbatches(), four.counted_tokens(), 1e-2, {.stop_request = 0.5});
        EXPECT_EQ(rank.report().stop_requests, 1);  // of both ranks
        EXPECT_EQ(rank.position().consumed_samples, 4 + 8);
    });
}

/// A batch of two microbatches of two sequences of these lengths.
class BatchOfLengths {
public:
    BatchOfLengths(int64_t first, int64_t second)
        : samples_({.lengths = {first, first, second, second},
                    .ids = 53,
                    .seq_length = model().seq_length}),
          batch_(samples_, {.micro_batch_size = 2}) {
        batch_.load(0, 2);
    }
    [[nodiscard]] const StepBatch& batch() const { return batch_; }

private:
    SamplesOfLengths samples_;
    StepBatch batch_;
};

TEST(TrainedRank, KeepsAsManyProgramsOfLengthsAsItIsTold) {
    const int64_t all = model().seq_length;
    ASSERT_GT(all, 3);
    const StepPlan plan =
        plan_step(model(), {.ranks = 2}, {},
                  {.microbatches = 2, .micro_batch_size = 2, .shorter_lengths = {3, 2}});
    on_ranks(plan, {.length_programs = 2}, [&](TrainedRank& rank) {
        const auto program_of = [&](int64_t first, int64_t second) {
            rank.train_step(BatchOfLengths(first, second).batch(), 1e-2);
            return rank.program();
        };
        EXPECT_EQ(program_of(all, all), 0U) << "the plan's own";
        EXPECT_EQ(program_of(all, 3), 1U);
        EXPECT_EQ(program_of(3, all), 2U);
        EXPECT_EQ(program_of(all, 3), 1U);
        EXPECT_EQ(program_of(2, 2), 2U) << "it was used before the other";
        EXPECT_EQ(program_of(all, 3), 1U);
        EXPECT_EQ(rank.executor().program(2).tokens, (std::vector<int64_t>{4, 4}));
        EXPECT_EQ(program_of(3, all), 2U);
        EXPECT_EQ(rank.executor().program(2).tokens, (std::vector<int64_t>{6, 2 * all}));
        EXPECT_EQ(rank.position().consumed_samples, 7 * 4);
        EXPECT_LE(rank.executor().program(1).arena_bytes, rank.executor().program(0).arena_bytes);
    });
}

TEST(TrainedRank, RefusesMicrobatchesOfALengthThatItsPlanDoesNotHave) {
    on_ranks(plan(1, {.microbatches = 2, .micro_batch_size = 2}), {}, [](TrainedRank& rank) {
        EXPECT_THAT([&] { rank.train_step(BatchOfLengths(2, 6).batch(), 1e-2); },
                    ThrowsMessage<UsageError>(HasSubstr("microbatch 0 has 4 tokens")));
    });
    const StepPlan some =
        plan(1, {.microbatches = 2, .micro_batch_size = 2, .shorter_lengths = {2}});
    on_ranks(some, {}, [](TrainedRank& rank) {
        EXPECT_THAT([&] { rank.train_step(BatchOfLengths(3, 2).batch(), 1e-2); },
                    ThrowsMessage<UsageError>(HasSubstr("3 is neither --seq-length")));
    });
}

TEST(TrainedRank, GoesOnInTheMiddleOfSeveralLengthsWithTheSameBits) {
    const std::string folder = ::testing::TempDir() + "/trained_rank_lengths";
    std::filesystem::remove_all(folder);
    const StepPlan plan =
        plan_step(model(), {.ranks = 2}, {.name = "zb-h1"},
                  {.microbatches = 2, .micro_batch_size = 2, .shorter_lengths = {3, 2}});
    const SamplesOfLengths samples(
        {.lengths = {6, 2, 3, 3, 2, 2, 6, 6, 2, 3}, .ids = 53, .seq_length = model().seq_length});
    const auto train_to = [&](TrainedRank& rank, int64_t last) {
        StepBatch batch(samples, {.micro_batch_size = 2});
        std::vector<double> losses;
        while (rank.position().step < last) {
            batch.load(rank.position().consumed_samples, 2);
            rank.train_step(batch, 1e-2);
            losses.push_back(rank.report().loss);
        }
        return losses;
    };
    std::vector<double> whole;
    on_ranks(plan, {}, [&](TrainedRank& rank) {
        const std::vector<double> losses = train_to(rank, 8);
        if (rank.communicator().rank() == 0) whole = losses;
    });
    on_ranks(plan, {}, [&](TrainedRank& rank) {
        (void)train_to(rank, 3);
        save_step(rank, folder);
    });
    on_ranks(plan, {}, [&](TrainedRank& rank) {
        EXPECT_TRUE(load_step(rank, folder));
        const std::vector<double> rest = train_to(rank, 8);
        EXPECT_EQ(rest, std::vector<double>(whole.begin() + 3, whole.end()));
    });
}

TEST(TrainedRank, HasNoOptimizerWherePlansHaveNone) {
    const StepPlan gradients =
        plan(1, {.microbatches = 4, .micro_batch_size = 2, .optimizer = false});
    on_ranks(gradients, {}, [](TrainedRank& rank) {
        const RandomBatch batch(model(), 2, 4, 1);
        rank.run(batch.microbatches());
        EXPECT_EQ(rank.output()->losses().size(), 4U);
        EXPECT_THAT([&] { rank.train_step(batch.microbatches(), 1, 1e-3); },
                    ThrowsMessage<UsageError>(HasSubstr("set StepWork::optimizer to true")));
        EXPECT_THAT([&] { (void)rank.report(); }, Throws<UsageError>());
    });
}

TEST(TrainedRank, TellsAllRanksWhatFailsOnOne) {
    const StepPlan of_two = plan(2);
    for (const char* what : {"replace_stage: stage 0 is not on this rank", "stage 7 is not"}) {
        const int stage = std::string(what).find('7') == std::string::npos ? 0 : 7;
        World::threads(2, {.timeout_seconds = 30}).run([&](Communicator& world) {
            const std::unique_ptr<Device> device = make_host_device();
            EXPECT_THAT(
                [&] {
                    TrainedRank(world, *device, of_two, {.change_model = [&](ModelRank& model) {
                                    if (world.rank() == 1) model.replace_stage(stage, nullptr);
                                }});
                },
                ThrowsMessage<AgreedError>(HasSubstr(what)));
        });
    }
}

/// Losses and the norm of the gradient of three steps on every mesh and schedule below, then of two
/// more after a resume with another number of ranks.
std::vector<double> losses_of_written_or_own(const ModelConfig& config, const StepCluster& cluster,
                                             const StepSchedule& schedule) {
    const std::string folder = ::testing::TempDir() + "/trained_rank_layers";
    std::filesystem::remove_all(folder);
    std::vector<double> losses;
    std::mutex mutex;
    const auto run = [&](const StepPlan& plan, bool resumes) {
        World::threads(plan.mesh().size(), {.timeout_seconds = 60}).run([&](Communicator& world) {
            const std::unique_ptr<Device> device = make_host_device();
            TrainedRank rank(world, *device, plan);
            if (resumes) {
                EXPECT_TRUE(load_step(rank, folder));
            }
            const int64_t last = rank.position().step + (resumes ? 2 : 3);
            while (rank.position().step < last) {
                const Mesh mesh = plan.mesh();
                const int replica = mesh.place(world.rank()).data;
                const RandomBatch batch(
                    config, 2, 4, static_cast<uint64_t>(rank.position().step + 100 * replica) + 1);
                rank.train_step(batch.microbatches(), mesh.data * batch.counted_tokens(), 1e-2);
                if (world.rank() != 0) continue;
                const std::lock_guard lock(mutex);
                losses.push_back(rank.report().loss);
                losses.push_back(rank.report().grad_norm);
            }
            if (!resumes) save_step(rank, folder);
        });
    };
    const StepWork work{.microbatches = 4, .micro_batch_size = 2};
    run(plan_step(config, cluster, schedule, work), false);
    run(plan_step(config, {.ranks = 1, .replicas = cluster.replicas}, {}, work), true);
    return losses;
}

TEST(TrainedRank, LayersThatAreWrittenAsTheirForwardTrainLikeTheModels) {
    struct Case {
        StepCluster cluster;
        StepSchedule schedule;
    };
    for (const Case& tested : {
             Case{{.ranks = 2}, {.name = "zb-h1"}},
             Case{{.ranks = 3}, {.name = "1f1b", .recompute = Recompute::selective}},
             Case{{.ranks = 2}, {.name = "v-half", .vocab_mode = VocabMode::two_barriers}},
             Case{{.ranks = 2, .replicas = 2},
                  {.name = "1f1b", .recompute = Recompute::full, .pieces = 2}},
         }) {
        SCOPED_TRACE(tested.schedule.name);
        for (const char* const family : {"gpt2", "llama"}) {
            ModelConfig config = small_family(family, 4, 8, 53, true);
            const auto expected = losses_of_written_or_own(config, tested.cluster, tested.schedule);
            const auto written = losses_of_written_or_own(with_written_layers(config),
                                                          tested.cluster, tested.schedule);
            EXPECT_EQ(written, expected);
            EXPECT_EQ(written.size(), 10);
            EXPECT_LT(written[8], written[0]);
        }
    }
}

/// With names and shapes that no family has.
LayerValue own_layer(LayerGraph& g, LayerValue x) {
    const kernels::AttentionShape heads{.heads = 2, .head_size = 8, .kv_heads = 1};
    const LayerValue n = g.rms_norm("norm", x);
    const LayerValue qkv = g.rotary(g.linear("qkv", n, {.out = {16, 8, 8}}), heads);
    return x + g.linear("o", g.attention(qkv, heads), {.out = {16}}) +
           g.linear("down", g.gated(kernels::Activation::silu, g.linear("up", n, {.out = {48}})),
                    {.out = {16}});
}

TEST(TrainedRank, OwnLayersAreSavedAndResumed) {
    ModelConfig config = small_model(3, 8, 53, true);
    config.learned_positions = false;  // unlike all of its family
    config.layer_forward = own_layer;
    for (const int64_t rank : {0, 2}) {  // of adapters
        config.lora = {.rank = rank};
        const std::vector<double> alone =
            losses_of_written_or_own(config, {.ranks = 1}, {.name = "1f1b"});
        const std::vector<double> cut =
            losses_of_written_or_own(config, {.ranks = 3}, {.name = "zb-h1"});
        ASSERT_EQ(alone.size(), 10);
        ASSERT_EQ(cut.size(), 10);
        // Shards of the vocabulary add up in another order; without AVX-512 1.1e-5 apart.
        for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(cut[i], alone[i], 5e-5) << i;
        EXPECT_LT(alone[8], alone[0]);
    }
}

TEST(TrainedRank, OtherProgramsDoNotLoadOwnLayers) {
    ModelConfig config = small_model(3, 8, 53, true);
    const StepWork work{.microbatches = 4, .micro_batch_size = 2};
    const std::string folder = ::testing::TempDir() + "/trained_rank_own_layers";
    std::filesystem::remove_all(folder);
    config.layer_forward = own_layer;
    config.learned_positions = false;
    on_ranks(plan_step(config, {}, {}, work), {}, [&](TrainedRank& rank) {
        const RandomBatch batch(config, 2, 4, 1);
        rank.train_step(batch.microbatches(), batch.counted_tokens(), 1e-2);
        save_step(rank, folder);
    });
    config.layer_forward = nullptr;
    on_ranks(plan_step(config, {}, {}, work), {}, [&](TrainedRank& rank) {
        EXPECT_THAT([&] { load_step(rank, folder); },
                    ThrowsMessage<Error>(HasSubstr(
                        "config.json: own_layers: the model has layers of a program's own; only "
                        "that program can load it")));
    });
    config.layer_forward = [](LayerGraph& g, LayerValue x) {
        return x + g.linear("o", x, {.out = {16}});
    };
    on_ranks(plan_step(config, {}, {}, work), {},
             [&](TrainedRank& rank) { EXPECT_THROW(load_step(rank, folder), Error); });
}

TEST(TrainedRank, LayersOfTheUserAreNotCut) {
    const ModelConfig config = with_written_layers(small_family("llama", 2, 8, 53, true));
    const auto refused = [&](const ModelConfig& model, const StepCluster& cluster) {
        return [&] { static_cast<void>(plan_step(model, cluster, {}, {})); };
    };
    EXPECT_THAT(
        refused(config, {.tensor = 2}),
        ThrowsMessage<UsageError>("--tensor-model-parallel-size 2: layers of your own "
                                  "(ModelConfig::layer_forward) are not cut among ranks; use 1"));
    EXPECT_THAT(
        refused(config, {.context = 2}),
        ThrowsMessage<UsageError>("--context-parallel-size 2: layers of your own "
                                  "(ModelConfig::layer_forward) need whole sequences; use 1"));
    ModelConfig deep = config;
    deep.mtp_num_layers = 1;
    EXPECT_THAT(refused(deep, {}),
                ThrowsMessage<UsageError>(HasSubstr(
                    "layers of your own (ModelConfig::layer_forward) have no depths; use 0")));
    ModelConfig experts = with_written_layers(small_family("mixtral", 2, 8, 53, true));
    EXPECT_THAT(refused(experts, {}),
                ThrowsMessage<UsageError>(HasSubstr("--num-experts 5: layers of your own")));
}

}  // namespace
}  // namespace vocabpipe::testing
