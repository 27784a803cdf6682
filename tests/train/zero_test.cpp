// SPDX-License-Identifier: Apache-2.0
// ZeRO stages 2 and 3 (ZeroOptions): the bits of stage 1 where every gradient is added up once, and
// the oracle's gradients in the order of uses where it is added up after each use.
#include "tests/model/model_cases.hpp"
#include "tests/model/tensor_models.hpp"
#include "tests/support/schedule_cases.hpp"
#include "tests/train/training_run.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/layer_graph.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/step_plan.hpp"
#include "vocabpipe/trained_rank.hpp"
#include "vocabpipe/world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr std::array kStages{2, 3};

TrainingSetup on_mesh(const std::string& schedule, VocabMode mode, const Mesh& mesh,
                      int microbatches = 2) {
    TrainingSetup setup = setup_on_mesh(schedule, mode, mesh, 29, [](int layers) {
        return small_family("gpt2", layers, 7, 29, true);
    });
    setup.microbatches = microbatches;
    setup.config.dtype = DType::bf16;
    setup.steps = 2;
    return setup;
}

void expect_bits_of_stage_1(TrainingSetup setup) {
    setup.zero = {};
    const Training expected = train_on_threads(setup);
    for (const int stage : kStages) {
        setup.zero = {.stage = stage, .reshard_after = ReshardAfter::step};
        EXPECT_EQ(first_difference(expected, train_on_threads(setup)), "") << "stage " << stage;
    }
}

// --- gradients that are added up once per step ---------------------------------------------------

struct Cell {
    std::string schedule;
    VocabMode mode;
    friend void PrintTo(const Cell& c, std::ostream* out) {
        *out << c.schedule << " " << to_string(c.mode);
    }
};

std::vector<Cell> cells() {
    std::vector<Cell> all;
    for (const Generator& family : generators()) {
        all.push_back({std::string(family.name), VocabMode::one_barrier});
        all.push_back({std::string(family.name), VocabMode::none});
    }
    all.push_back({"interleaved", VocabMode::two_barriers});
    all.push_back({"1f1b", VocabMode::interlaced});
    return all;
}

class Zero : public ::testing::TestWithParam<Cell> {};

TEST_P(Zero, HasTheBitsOfStage1WhereEachGradientIsAddedUpOnce) {
    expect_bits_of_stage_1(on_mesh(GetParam().schedule, GetParam().mode, {2, 2}));
}

INSTANTIATE_TEST_SUITE_P(All, Zero, ::testing::ValuesIn(cells()), [](const auto& info) {
    return test_name(info.param.schedule + "_" + std::string(to_string(info.param.mode)));
});

// The weights of a pass are there while it runs, and no other: all else is NaN in these runs.
TEST(ZeroOfModels, HasTheBitsOfStage1InEveryFamily) {
    for (const std::string& family : model_families()) {
        for (const char* schedule : {"interleaved", "zb-v"}) {
            SCOPED_TRACE(family + " " + schedule);
            TrainingSetup setup = setup_on_mesh(
                schedule, VocabMode::one_barrier, {2, 2}, 29,
                [&](int layers) { return small_family(family, layers, 7, 29, false); });
            setup.config.dtype = DType::bf16;
            setup.steps = 2;
            expect_bits_of_stage_1(setup);
        }
    }
}

TEST(ZeroOfMeshes, HasTheBitsOfStage1WithTensorContextAndExpertRanks) {
    for (const Mesh mesh :
         {Mesh{.pipeline = 2, .data = 2, .tensor = 2}, Mesh{.pipeline = 1, .data = 3, .tensor = 2},
          Mesh{.pipeline = 2, .data = 2, .context = 2}}) {
        SCOPED_TRACE(std::to_string(mesh.tensor) + " " + std::to_string(mesh.context));
        TrainingSetup setup =
            setup_on_mesh("interleaved", VocabMode::one_barrier, mesh, 61, [](int layers) {
                ModelConfig model = tensor_model("llama", false);
                model.num_layers = layers;
                return model;
            });
        setup.steps = 2;
        expect_bits_of_stage_1(setup);
    }
    for (const Mesh mesh : {Mesh{.pipeline = 2, .data = 4, .expert = 2},
                            Mesh{.pipeline = 1, .data = 2, .expert = 2}}) {
        SCOPED_TRACE(mesh.data);
        TrainingSetup setup =
            setup_on_mesh("zb-v", VocabMode::one_barrier, mesh, 61, [](int layers) {
                ModelConfig model = expert_models().front();
                model.num_layers = layers;
                return model;
            });
        setup.steps = 2;
        expect_bits_of_stage_1(setup);
    }
}

TEST(ZeroOfDepths, HasTheBitsOfStage1) {
    TrainingSetup setup =
        setup_on_mesh("interleaved", VocabMode::one_barrier, {2, 2}, 29,
                      [](int layers) { return tiny_predicting(layers, {.vocab_size = 29}, 2); });
    setup.steps = 2;
    expect_bits_of_stage_1(setup);
}

TEST(ZeroOfRecomputation, HasTheBitsOfStage1) {
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        for (const char* schedule : {"1f1b", "v-half"}) {
            TrainingSetup setup = on_mesh(schedule, VocabMode::one_barrier, {2, 2});
            setup.recompute = recompute;
            expect_bits_of_stage_1(setup);
        }
    }
}

/// y = x * weight, element by element; its W reads the weight, which does not change the result.
LayerOperator scale_columns(int64_t columns) {
    return {.name = "scale_columns",
            .columns = columns,
            .weights = {{.name = "scale", .cols = columns, .init_std = 0.5F}},
            .forward =
                [](Context&, const Microbatch&, const OperatorTensors& in, Tensor y) {
                    const auto* const w = in.weights[0].as<float>();
                    for (int64_t i = 0; i < y.size(); ++i) {
                        y.as<float>()[i] = in.x[0].as<float>()[i] * w[i % y.cols];
                    }
                },
            .backward_input =
                [](Context&, const Microbatch&, const OperatorTensors& in, ConstTensor dy,
                   std::span<const Tensor> dx) {
                    const auto* const w = in.weights[0].as<float>();
                    for (int64_t i = 0; i < dy.size(); ++i) {
                        dx[0].as<float>()[i] = dy.as<float>()[i] * w[i % dy.cols];
                    }
                },
            .backward_weight =
                [](Context&, const Microbatch&, const OperatorTensors& in, ConstTensor dy,
                   std::span<const Tensor> dweights, bool accumulate) {
                    auto* const dw = dweights[0].as<float>();
                    const auto* const w = in.weights[0].as<float>();
                    if (!accumulate) std::fill_n(dw, dy.cols, 0.0F);
                    for (int64_t i = 0; i < dy.size(); ++i) {
                        dw[i % dy.cols] +=
                            dy.as<float>()[i] * in.x[0].as<float>()[i] + 0 * w[i % dy.cols];
                    }
                }};
}

TEST(ZeroOfOwnLayers, HasTheBitsOfStage1WhereWReadsWeights) {
    for (const char* schedule : {"zb-v", "interleaved-zb"}) {
        TrainingSetup setup =
            setup_on_mesh(schedule, VocabMode::one_barrier, {2, 2}, 29, [](int layers) {
                ModelConfig model = small_family("llama", layers, 7, 29, false);
                model.layer_forward = [](LayerGraph& g, LayerValue x) {
                    return x + g.apply(scale_columns(16), {g.linear("a", x, 16)});
                };
                return model;
            });
        setup.steps = 2;
        expect_bits_of_stage_1(setup);
    }
}

/// Experts on two ranks, whose rows come in many waves; every schedule's W computes some again.
TEST(ZeroOfExpertRanks, HasTheBitsOfStage1InManyWaves) {
    TrainingSetup setup =
        setup_on_mesh("zb-v", VocabMode::one_barrier, {.pipeline = 2, .data = 4, .expert = 2}, 61,
                      [](int layers) {
                          ModelConfig model = expert_models().front();
                          model.num_layers = layers;
                          return model;
                      });
    setup.moe_row_factor = 0.2;
    setup.steps = 2;
    expect_bits_of_stage_1(setup);
}

// --- memory --------------------------------------------------------------------------------------

TEST(ZeroMemory, KeepsAnEqualPartOfEveryLayerOnEachReplica) {
    const Schedule schedule = make_schedule("interleaved", {.ranks = 1,
                                                            .microbatches = 2,
                                                            .vocab_mode = VocabMode::none,
                                                            .vocab_size = 29,
                                                            .rule = {.chunks = 4}});
    ModelConfig config = small_family("llama", 4, 7, 29, false);
    config.dtype = DType::bf16;
    config.hidden_size = 64;
    config.ffn_hidden_size = 256;
    ModelPartition partition = even_partition(config, schedule, 1);
    partition.optimizer = true;
    partition.replicas = 4;
    const auto of_stage = [&](int stage) {
        partition.zero_stage = stage;
        return persistent_bytes(config, partition, schedule, 1);
    };
    const PersistentBytes one = of_stage(1), two = of_stage(2), three = of_stage(3);
    // Weights and gradients of the vocabulary stay whole, in 2 and 4 bytes.
    const auto vocabulary = static_cast<double>(2 * 29 * 64);
    const auto layers = (static_cast<double>(one.gradients) - 4 * vocabulary) / 4;
    EXPECT_EQ(two.weights, one.weights);
    EXPECT_NEAR(static_cast<double>(two.gradients), 4 * (vocabulary + layers / 4), 0.02 * layers);
    EXPECT_EQ(three.gradients, two.gradients);
    EXPECT_NEAR(static_cast<double>(one.weights - three.weights), 2 * layers * 3 / 4,
                0.02 * layers);
    EXPECT_EQ(three.optimizer, one.optimizer);
}

TEST(ZeroOfSeveralPlans, IsTheSameForAll) {
    const Schedule schedule =
        make_schedule("1f1b", {.ranks = 1, .microbatches = 1, .vocab_size = 29});
    const ModelConfig config = small_model(1, 7, 29, false);
    ModelPartition partition = even_partition(config, schedule, 1);
    partition.optimizer = true;
    partition.replicas = 2;
    TableCosts costs = TableCosts::uniform(1, 1, 1000, 2000, 500);
    costs.slices = 2;
    std::vector<StepPlan> plans;
    for (const int stage : {3, 1}) {
        partition.zero_stage = stage;
        plans.push_back(plan_step(config, partition, schedule, costs));
    }
    EXPECT_THROW(World::threads(2).run([&](Communicator& communicator) {
        const std::unique_ptr<Device> device = make_host_device();
        const TrainedRank rank(communicator, *device, plans);
    }),
                 UsageError);
    for (const int stage : {0, 4}) {
        partition.zero_stage = stage;
        EXPECT_THROW((void)plan_step(config, partition, schedule, costs), UsageError);
    }
}

TEST(ZeroOfStagesOfYourOwn, IsRefused) {
    const Schedule schedule =
        make_schedule("1f1b", {.ranks = 1, .microbatches = 1, .vocab_size = 29});
    const ModelConfig config = small_model(1, 7, 29, false);
    ModelPartition partition = even_partition(config, schedule, 1);
    partition.replicas = 2;
    const std::unique_ptr<Device> device = make_host_device();
    for (const int stage : kStages) {
        partition.zero_stage = stage;
        ModelRank model(config, partition, schedule, 0, *device);
        EXPECT_THROW(model.replace_stage(0, nullptr), UsageError);
    }
}

TEST(ZeroWithoutAnOptimizer, IsRefused) {
    const Schedule schedule =
        make_schedule("1f1b", {.ranks = 1, .microbatches = 1, .vocab_size = 29});
    ModelPartition partition = even_partition(small_model(1, 7, 29, false), schedule, 1);
    partition.optimizer = false;
    partition.replicas = 2;
    TableCosts costs = TableCosts::uniform(1, 1, 1000, 2000, 500);
    costs.slices = 2;
    for (const int stage : kStages) {
        partition.zero_stage = stage;
        try {
            World::threads(2).run([&](Communicator& communicator) {
                const std::unique_ptr<Device> device = make_host_device();
                const StepPlan plan =
                    plan_step(small_model(1, 7, 29, false), partition, schedule, costs);
                const TrainedRank rank(communicator, *device, plan);
            });
            ADD_FAILURE() << "accepted stage " << stage;
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), ::testing::HasSubstr("ZeRO stages 2 and 3 require"));
        }
    }
}

// --- gradients that are added up after each use --------------------------------------------------

/// [stage] The microbatches of each use of its gradients, by the order in which passes write them.
std::map<int, std::vector<std::vector<size_t>>> uses_of(const Schedule& schedule) {
    std::map<int, std::vector<std::vector<size_t>>> uses;
    for (const std::vector<Pass>& passes : schedule.passes) {
        int before = -1;
        for (const Pass& pass : passes) {
            if (pass.op != Op::B && pass.op != Op::W) continue;
            if (pass.stage != before) uses[pass.stage].emplace_back();
            uses[pass.stage].back().push_back(pass.microbatch);
            before = pass.stage;
        }
    }
    return uses;
}

Batch only(const Batch& batch, const std::vector<size_t>& microbatches) {
    Batch part = batch;
    part.tokens.clear();
    part.labels.clear();
    part.loss_gradient.clear();
    for (const size_t j : microbatches) {
        part.tokens.push_back(batch.tokens[j]);
        part.labels.push_back(batch.labels[j]);
        part.loss_gradient.push_back(batch.loss_gradient[j]);
    }
    return part;
}

/// The oracle's gradients of these microbatches of every replica, added up in replica order.
std::map<std::string, std::vector<float>> sum_of(const TrainingSetup& setup,
                                                 const std::vector<size_t>& microbatches) {
    const Schedule schedule =
        make_schedule("1f1b", {.ranks = 1,
                               .microbatches = static_cast<int>(microbatches.size()),
                               .vocab_mode = VocabMode::none,
                               .vocab_size = setup.config.vocab_size});
    const ModelPartition partition = even_partition(setup.config, schedule, setup.sequences);
    std::map<std::string, std::vector<float>> sum;
    for (int replica = 0; replica < setup.replicas; ++replica) {
        const Batch mine = part_of(toy_batch(setup, 1), replica, setup.replicas);
        Gradients part = run_single_rank(setup.config, partition, schedule,
                                         only(mine, microbatches), setup.seed);
        for (auto& [name, values] : part.by_name) {
            if (replica == 0) {
                sum[name] = std::move(values);
                continue;
            }
            for (size_t i = 0; i < values.size(); ++i) sum[name][i] += values[i];
        }
    }
    return sum;
}

TEST(ZeroAfterUse, AddsUpTheOraclesGradientsUseByUse) {
    for (const auto& [name, pipeline] : {std::pair{"interleaved", 1},
                                         {"interleaved", 2},
                                         {"looped-bfs", 2},
                                         {"zb-v", 2},
                                         {"1f1b", 2}}) {
        for (const int replicas : {2, 3}) {
            SCOPED_TRACE(std::string(name) + " " + std::to_string(pipeline) + " " +
                         std::to_string(replicas));
            TrainingSetup setup = on_mesh(name, VocabMode::none, {pipeline, replicas}, 4);
            setup.config.dtype = DType::fp32;
            setup.config.tied = false;
            setup.steps = 1;
            const Schedule schedule = make_schedule(name, {.ranks = pipeline,
                                                           .microbatches = 4,
                                                           .vocab_mode = VocabMode::none,
                                                           .vocab_size = 29});
            std::map<std::vector<size_t>, std::map<std::string, std::vector<float>>> sums;
            std::map<int, std::map<std::string, std::vector<float>>> expected;  // by stage
            size_t most_uses = 0;
            for (const auto& [stage, uses] : uses_of(schedule)) {
                most_uses = std::max(most_uses, uses.size());
                for (const std::vector<size_t>& use : uses) {
                    if (!sums.contains(use)) sums[use] = sum_of(setup, use);
                    for (const auto& [tensor, values] : sums[use]) {
                        std::vector<float>& into = expected[stage][tensor];
                        if (into.empty()) {
                            into = values;
                            continue;
                        }
                        for (size_t i = 0; i < values.size(); ++i) into[i] += values[i];
                    }
                }
            }
            const bool several = schedule.stages > schedule.ranks;
            EXPECT_EQ(most_uses > 1, several && std::string(name) != "looped-bfs");
            const std::vector<int> layers =
                even_partition(setup.config, schedule, setup.sequences).layers_per_stage;
            std::map<std::string, int> stage_of;  // by the names of a layer's tensors
            for (int stage = 0, layer = 0; stage < schedule.stages; ++stage) {
                for (int i = 0; i < layers[static_cast<size_t>(stage)]; ++i, ++layer) {
                    stage_of["transformer.h." + std::to_string(layer) + "."] = stage;
                }
            }
            for (const int zero : kStages) {
                setup.zero.stage = zero;
                const Training run = train_on_threads(setup);
                size_t compared = 0;
                for (const auto& [prefix, stage] : stage_of) {
                    for (const auto& [tensor, want] : expected[stage]) {
                        if (!tensor.starts_with(prefix)) continue;
                        const std::vector<float>& got = run.gradients.at(tensor);
                        ASSERT_EQ(got.size(), want.size());
                        EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * 4), 0)
                            << tensor << " of stage " << stage;
                        ++compared;
                    }
                }
                EXPECT_EQ(compared, 12 * stage_of.size());
            }
        }
    }
}

// Gradients begin anew at each use, statistics of routers do not.
TEST(ZeroAfterUse, CountsTheRoutersOfAllMicrobatches) {
    for (const int depths : {0, 1}) {
        for (const char* family : {"mixtral", "dots1"}) {
            if (depths > 0 && std::string(family) == "dots1") continue;
            SCOPED_TRACE(family);
            TrainingSetup setup =
                setup_on_mesh("interleaved", VocabMode::one_barrier, {2, 2}, 29, [&](int layers) {
                    ModelConfig model = small_family(family, layers, 7, 29, false);
                    model.mtp_num_layers = depths;
                    if (std::string(family) == "dots1") {
                        model.moe.sparse.assign(static_cast<size_t>(layers), true);
                        model.moe.bias_rate = 0.01F;
                    }
                    return model;
                });
            setup.microbatches = 4;
            setup.steps = 1;
            const Training expected = train_on_threads(setup);
            ASSERT_TRUE(expected.routers.front());
            for (const int stage : kStages) {
                setup.zero.stage = stage;
                const Training got = train_on_threads(setup);
                ASSERT_TRUE(got.routers.front());
                EXPECT_EQ(got.routers.front()->aux_loss, expected.routers.front()->aux_loss);
                EXPECT_EQ(got.routers.front()->z_loss, expected.routers.front()->z_loss);
                EXPECT_EQ(got.routers.front()->max_load, expected.routers.front()->max_load);
                EXPECT_EQ(got.correction_biases, expected.correction_biases);
                EXPECT_EQ(expected.correction_biases.empty(), std::string(family) != "dots1");
            }
        }
    }
}

TEST(ZeroAfterUse, TrainsLikeStage1) {
    for (const char* schedule : {"interleaved", "v-half", "dualpipe-v"}) {
        TrainingSetup setup = on_mesh(schedule, VocabMode::one_barrier, {2, 2}, 4);
        setup.config.dtype = DType::fp32;
        setup.steps = 5;
        const Training expected = train_on_threads(setup);
        for (const int ahead : {0, 1, 3}) {
            setup.zero = {.stage = 3, .gather_ahead = ahead};
            const Training got = train_on_threads(setup);
            EXPECT_EQ(got.losses.front(), expected.losses.front());
            for (size_t step = 0; step < got.losses.size(); ++step) {
                EXPECT_NEAR(got.losses[step], expected.losses[step], 1e-5) << schedule << step;
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
