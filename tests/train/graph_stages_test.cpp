// SPDX-License-Identifier: Apache-2.0
// Stages that are a graph: gradients against finite differences, and every way to cut and schedule
// a model against one rank, bit by bit.
#include "benchmarks/written_layers.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/train/graph_batch.hpp"
#include "tests/train/graph_models.hpp"
#include "vocabpipe/checkpoint.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Case {
    StepCluster cluster;
    StepSchedule schedule;
};

StepPlan plan_of(const ModelConfig& config, const Case& tested, bool optimizer = true) {
    return plan_step(config, tested.cluster, tested.schedule,
                     {.microbatches = kGraphMicrobatches,
                      .micro_batch_size = kGraphSequences,
                      .optimizer = optimizer});
}

void on_ranks(const StepPlan& plan, const TrainedRankOptions& options,
              const std::function<void(TrainedRank&)>& body) {
    World::threads(plan.mesh().size(), {.timeout_seconds = 60}).run([&](Communicator& world) {
        const std::unique_ptr<Device> device = make_host_device();
        TrainedRank rank(world, *device, plan, options);
        body(rank);
    });
}

/// What a training leaves.
struct Result {
    std::vector<double> losses, norms;
    std::map<std::string, std::vector<float>> weights;  ///< whole ones, by name
};

std::vector<float> values_of(const Tensor& tensor) {
    std::vector<float> values;
    for (int64_t i = 0; i < tensor.size(); ++i) {
        if (tensor.dtype == DType::fp32) {
            values.push_back(tensor.as<float>()[i]);
        } else {
            values.push_back(static_cast<float>(tensor.as<uint16_t>()[i]));
        }
    }
    return values;
}

Result train(const StepPlan& plan, int steps = 3) {
    Result result;
    std::mutex mutex;
    on_ranks(plan, {.poison_dead_buffers = true}, [&](TrainedRank& rank) {
        for (int step = 0; step < steps; ++step) {
            const GraphBatch batch(plan.model, static_cast<uint64_t>(step) + 1);
            // Replicas share a step's microbatches in turn.
            rank.train_step(batch.microbatches(), batch.counted(), 1e-2);
            if (rank.communicator().rank() > 0) continue;
            result.losses.push_back(rank.report().loss);
            result.norms.push_back(rank.report().grad_norm);
        }
        const std::scoped_lock lock(mutex);
        for (const Parameter& p : rank.parameters()) {
            if (p.weight.rows != p.logical_rows || p.shards_weight) continue;
            const auto [known, is_new] = result.weights.emplace(p.name, values_of(p.weight));
            EXPECT_TRUE(is_new || known->second == values_of(p.weight)) << p.name << " is shared";
        }
    });
    return result;
}

class GraphStagesOf : public ::testing::TestWithParam<GraphModel> {};

TEST_P(GraphStagesOf, HaveTheBitsOfOneRankInEveryScheduleAndCut) {
    const std::vector<Case> cases{
        {{.ranks = 2}, {.name = "1f1b"}},
        {{.ranks = 4}, {.name = "1f1b"}},
        {{.ranks = 3}, {.name = "gpipe"}},
        {{.ranks = 3}, {.name = "zb-h1"}},
        {{.ranks = 4}, {.name = "zb-h1", .vocab_mode = VocabMode::two_barriers}},
        {{.ranks = 2}, {.name = "v-half"}},
        {{.ranks = 2}, {.name = "interleaved", .vocab_mode = VocabMode::none}},
        {{.ranks = 2}, {.name = "zb-v", .recompute = Recompute::selective}},
        {{.ranks = 3}, {.name = "1f1b", .recompute = Recompute::full}},
        {{.ranks = 1}, {.name = "1f1b", .recompute = Recompute::full}},
        {{.ranks = 2}, {.name = "interleaved", .recompute = Recompute::full}},
        {{.ranks = 3}, {.name = "zb-h1", .recompute = Recompute::selective}},
        {{.ranks = 2}, {.name = "dualpipe-v"}},
    };
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        ModelConfig config = GetParam().config;
        if (dtype == DType::bf16 && GetParam().name == "TwoTowers") continue;  // its own operator
        config.dtype = dtype;
        const Result alone = train(plan_of(config, {}));
        ASSERT_EQ(alone.losses.size(), 3U);
        EXPECT_NE(alone.losses[0], alone.losses[1]);
        for (const Case& tested : cases) {
            SCOPED_TRACE(tested.schedule.name + " on " + std::to_string(tested.cluster.ranks));
            const Result cut = train(plan_of(config, tested));
            for (size_t i = 0; i < 3; ++i) {
                // Sums over stages and over shards of the vocabulary have other orders.
                const double bound = dtype == DType::fp32 ? 1e-6 : 1e-2;
                EXPECT_NEAR(cut.losses[i], alone.losses[i], bound * std::abs(alone.losses[i]));
            }
            const bool shards =
                config.has_output_layer && tested.schedule.vocab_mode != VocabMode::none;
            if (shards) continue;  // of which AdamW makes other weights where gradients are noise
            for (const auto& [name, weight] : cut.weights) {
                const std::vector<float>& expected = alone.weights.at(name);
                EXPECT_EQ(weight, expected) << name;
            }
        }
    }
}

TEST_P(GraphStagesOf, HaveTheSameBitsWhereReplicasShareLayers) {
    const ModelConfig& config = GetParam().config;
    for (const char* schedule : {"interleaved", "zb-v"}) {
        Case tested{{.ranks = 2, .replicas = 2}, {.name = schedule}};
        const Result expected = train(plan_of(config, tested));
        for (const int stage : {2, 3}) {
            SCOPED_TRACE(std::string(schedule) + " " + std::to_string(stage));
            tested.schedule.zero = {.stage = stage, .reshard_after = ReshardAfter::step};
            if (GetParam().name == "SharedLayers") {
                EXPECT_THAT([&] { (void)plan_of(config, tested); },
                            ThrowsMessage<UsageError>(HasSubstr("that several layers share")));
                continue;
            }
            const Result shared = train(plan_of(config, tested));
            EXPECT_EQ(shared.losses, expected.losses);
            EXPECT_EQ(shared.norms, expected.norms);
            tested.schedule.zero.reshard_after = ReshardAfter::use;
            EXPECT_EQ(train(plan_of(config, tested)).losses.front(), expected.losses.front());
        }
    }
}

TEST_P(GraphStagesOf, WithWholeVocabularyLayersHaveAllBits) {
    ModelConfig config = GetParam().config;
    const Result alone = train(plan_of(config, {{}, {.vocab_mode = VocabMode::none}}));
    for (const char* const name : {"1f1b", "zb-h1", "v-half", "interleaved", "zb-v"}) {
        for (const int ranks : {2, 3}) {
            if (ranks == 3 && config.num_layers < 6 && std::string(name) != "1f1b" &&
                std::string(name) != "zb-h1") {
                continue;  // two stages on a rank
            }
            SCOPED_TRACE(std::string(name) + " on " + std::to_string(ranks));
            const Result cut = train(
                plan_of(config, {{.ranks = ranks}, {.name = name, .vocab_mode = VocabMode::none}}));
            for (const auto& [weight, values] : cut.weights) {
                EXPECT_EQ(values, alone.weights.at(weight)) << weight;
            }
        }
    }
}

/// Sum of the losses of a step, without an update.
double loss_of(TrainedRank& rank, const GraphBatch& batch) {
    rank.run(batch.microbatches());
    double sum = 0;
    for (const std::span<const double> losses : rank.model().stage_losses()) {
        for (const double loss : losses) sum += loss;
    }
    if (rank.output() != nullptr) {
        for (const double loss : rank.output()->losses()) sum += loss;
    }
    return sum;
}

TEST_P(GraphStagesOf, GradientsAreThoseOfFiniteDifferences) {
    ModelConfig config = GetParam().config;
    config.tied = false;  // without an optimizer nobody adds up the halves of a tied gradient
    on_ranks(plan_of(config, {}, false), {}, [&](TrainedRank& rank) {
        const GraphBatch batch(config, 7);
        (void)loss_of(rank, batch);
        std::mt19937_64 random(3);
        for (Parameter& p : rank.parameters()) {
            SCOPED_TRACE(p.name);
            // Along a random direction.
            double expected = 0;
            std::vector<float> direction;
            for (int64_t i = 0; i < p.weight.size(); ++i) {
                direction.push_back(random() % 2 == 0 ? 1.0F : -1.0F);
                expected += static_cast<double>(p.gradient.as<float>()[i]) * direction.back();
            }
            const std::vector<float> before = values_of(p.weight);
            const auto at = [&](float step) {
                for (size_t i = 0; i < before.size(); ++i) {
                    p.weight.as<float>()[i] = before[i] + step * direction[i];
                }
                return loss_of(rank, batch);
            };
            constexpr float kStep = 2e-3F;
            // Without the error of third order.
            const double wide = (at(2 * kStep) - at(-2 * kStep)) / (4.0 * kStep);
            const double narrow = (at(kStep) - at(-kStep)) / (2.0 * kStep);
            const double found = (4 * narrow - wide) / 3;
            (void)at(0);
            EXPECT_NEAR(found, expected, 3e-3 * std::abs(expected) + 1e-3);
        }
    });
}

TEST_P(GraphStagesOf, LearnAndAreSavedAndResumedAtAnotherCut) {
    const ModelConfig& config = GetParam().config;
    const std::string folder = ::testing::TempDir() + "/graph_stages_" + GetParam().name;
    std::filesystem::remove_all(folder);
    std::vector<double> whole, rest;
    const GraphBatch batch(config, 5);
    const auto go_on = [&](TrainedRank& rank, int last, std::vector<double>& losses) {
        while (rank.position().step < last) {
            rank.train_step(batch.microbatches(), batch.counted(), 1e-2);
            if (rank.communicator().rank() == 0) losses.push_back(rank.report().loss);
        }
    };
    on_ranks(plan_of(config, {{.ranks = 2}, {.name = "zb-h1"}}), {}, [&](TrainedRank& rank) {
        go_on(rank, 5, whole);
        save_step(rank, folder);
        go_on(rank, 20, whole);
    });
    on_ranks(plan_of(config, {{.ranks = 4}, {.name = "1f1b"}}), {.initialise = false},
             [&](TrainedRank& rank) {
                 ASSERT_TRUE(load_step(rank, folder));
                 go_on(rank, 20, rest);
             });
    ASSERT_EQ(whole.size(), 20U);
    ASSERT_EQ(rest.size(), 15U);
    EXPECT_LT(whole.back(), whole.front() - 0.05);
    for (size_t i = 0; i < rest.size(); ++i) EXPECT_NEAR(rest[i], whole[i + 5], 2e-4) << i;
}

TEST_P(GraphStagesOf, OfReplicasTrainAsTwiceTheMicrobatches) {
    const ModelConfig& config = GetParam().config;
    const Result twice = train(plan_of(config, {{.ranks = 2, .replicas = 2}, {.name = "zb-h1"}}));
    // Both replicas have the same microbatches here, each with the weights of a whole step.
    const Result alone = train(plan_of(config, {{.ranks = 2}, {.name = "1f1b"}}));
    EXPECT_NEAR(twice.losses[0], 2 * alone.losses[0], 1e-5 * std::abs(alone.losses[0]));
    EXPECT_NEAR(twice.norms[0], 2 * alone.norms[0], 1e-4 * alone.norms[0]);
}

TEST(GraphStages, KeepResultsThatEveryRankReads) {
    const ModelConfig config = graph_models()[1].config;
    const GraphBatch batch(config, 3);
    std::map<std::string, std::vector<float>> alone;
    for (const int ranks : {1, 2, 4}) {
        StepWork work{.microbatches = kGraphMicrobatches, .micro_batch_size = kGraphSequences};
        std::vector plans{plan_step(config, {.ranks = ranks}, {.name = "zb-h1"}, work)};
        work.evaluation = true;
        plans.push_back(plan_step(config, {.ranks = ranks}, {.name = "zb-h1"}, work));
        World::threads(ranks, {.timeout_seconds = 60}).run([&](Communicator& world) {
            const std::unique_ptr<Device> device = make_host_device();
            TrainedRank rank(world, *device, plans);
            rank.run(batch.microbatches(), 1);
            std::map<std::string, std::vector<float>> found;
            for (const char* const name : {"classes", "pooled", "early", "mean"}) {
                found[name] = rank.results(name);
            }
            if (ranks == 1) alone = found;
            EXPECT_EQ(found, alone);
            const size_t sequences = kGraphMicrobatches * kGraphSequences;
            EXPECT_EQ(found["classes"].size(), sequences * kGraphClasses);
            EXPECT_EQ(found["pooled"].size(), sequences * 4 * 8);
            EXPECT_EQ(found["early"].size(), sequences * 4 * 8);
            EXPECT_EQ(found["mean"].size(), sequences * 8);
            // A step leaves them, too, and of its own weights.
            rank.train_step(batch.microbatches(), batch.counted(), 1e-2);
            EXPECT_EQ(rank.results("classes"), alone["classes"]);
            rank.run(batch.microbatches(), 1);
            EXPECT_NE(rank.results("classes"), alone["classes"]);
            EXPECT_THAT([&] { static_cast<void>(rank.results("other")); },
                        ThrowsMessage<UsageError>(
                            HasSubstr("results: the model has no result other; name it by")));
        });
    }
}

TEST(GraphStages, OfWhichOnlyResultsDependAreRefused) {
    const auto model = [](ModelGraph& g) {
        const LayerValue x = g.embedded_tokens();
        g.result("unused", g.linear("probe", x, 3));
        g.output(g.layer_norm("norm", x));
    };
    EXPECT_THAT([&] { static_cast<void>(model_of(model)); },
                ThrowsMessage<UsageError>(
                    "ModelConfig::model_forward: layer 0: only results depend on probe, which no "
                    "loss trains then; use it for a loss or the output"));
}

/// Losses and norms, which say that all weights have the same bits.
void expect_the_same_training(const ModelConfig& one, const ModelConfig& other,
                              const Case& tested) {
    const Result expected = train(plan_of(one, tested)), found = train(plan_of(other, tested));
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(found.norms.size(), expected.norms.size());
    for (size_t i = 0; i < found.norms.size(); ++i) {
        // Sums of squares by tensor, in another order.
        EXPECT_NEAR(found.norms[i], expected.norms[i], 1e-9 * expected.norms[i]);
    }
}

TEST(GraphStages, ThatComputeAModelOfTheLibraryHaveItsBits) {
    for (const char* const family : {"gpt2", "llama", "gemma2", "qwen3"}) {
        ModelConfig config = small_family(family, 4, 8, 53, true);
        config.max_position_embeddings = 8;
        for (const Case& tested : {
                 Case{{.ranks = 2}, {.name = "1f1b"}},
                 Case{{.ranks = 3}, {.name = "zb-h1", .vocab_mode = VocabMode::two_barriers}},
                 Case{{.ranks = 2}, {.name = "v-half", .recompute = Recompute::full}},
                 Case{{.ranks = 2}, {.name = "1f1b", .recompute = Recompute::selective}},
             }) {
            SCOPED_TRACE(std::string(family) + " " + tested.schedule.name);
            expect_the_same_training(config, as_written_model(config), tested);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, GraphStagesOf, ::testing::ValuesIn(graph_models()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace vocabpipe::testing
