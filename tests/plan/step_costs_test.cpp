// SPDX-License-Identifier: Apache-2.0
// Costs of passes and messages from FLOPs, bytes and efficiencies.
#include "src/plan/step_costs.hpp"

#include "src/plan/step_model.hpp"
#include "tests/plan/plan_cases.hpp"
#include "vocabpipe/parameter_count.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int64_t kMessage = 12'582'912;  // bytes: 2048 tokens of 3072 16-bit elements

TEST(StepCosts, AMessageInsideANodeTakesLatencyAndBytesOverTheLinksRate) {
    const DeviceSpec a100 = load_device("a100");
    const StepCosts costs(a100, {});
    EXPECT_EQ(costs.transfer_ns(Do::send, {{6, 7}, -1}, kMessage),
              std::llround(10e3 + kMessage / (300.0 * a100.message_efficiency.value)));
    EXPECT_EQ(costs.transfer_ns(Do::send, {{7, 8}, -1}, kMessage),
              std::llround(20e3 + kMessage / (25.0 * a100.network_efficiency.value)));
    EXPECT_EQ(costs.slowest_hop_ns(8, kMessage),
              costs.transfer_ns(Do::send, {{0, 1}, -1}, kMessage));
    EXPECT_EQ(costs.slowest_hop_ns(9, kMessage),
              costs.transfer_ns(Do::send, {{7, 8}, -1}, kMessage));
    EXPECT_EQ(costs.slowest_hop_ns(1, kMessage), 0);
}

TEST(StepCosts, AGroupGoesAtTheSpeedOfTheSlowestLinkItSpans) {
    const StepCosts costs(load_device("a100"), {});
    EXPECT_LT(costs.transfer_ns(Do::broadcast, {{0, 1, 2, 3}, 3}, kMessage),
              costs.transfer_ns(Do::broadcast, {{6, 7, 8, 9}, 9}, kMessage));
}

TEST(StepCosts, CollectivesBetweenNodesGoAtTheRateOfMessages) {
    const DeviceSpec a100 = load_device("a100");
    const StepCosts costs(a100, {});
    const double rate = a100.network_gb_per_s.value * a100.network_efficiency.value;
    EXPECT_EQ(costs.transfer_ns(Do::all_to_all, {{7, 8}, 7}, kMessage),
              std::llround(20e3 + kMessage / 2.0 / rate));
    EXPECT_EQ(costs.transfer_ns(Do::all_to_all, {{6, 7}, 7}, kMessage),
              std::llround(10e3 + kMessage / 2.0 / (300.0 * a100.link_efficiency.value)));
}

// Latencies of ceil(log2 k) rounds where everybody gets everything; bytes of each peer's part.
TEST(StepCosts, GroupsOfThreeTakeTwoRoundsToReachAll) {
    DeviceSpec device = load_device("a100");
    device.link_gb_per_s.value = device.link_efficiency.value = 1;
    device.link_latency_us.value = 1;
    const StepCosts costs(device, {});
    const auto ns = [&](Do what, std::vector<int> ranks) {
        return costs.transfer_ns(what, {std::move(ranks), -1}, 600);
    };
    EXPECT_EQ(ns(Do::broadcast, {0, 1}), 1000 + 600);
    EXPECT_EQ(ns(Do::broadcast, {0, 1, 2}), 2000 + 600);
    EXPECT_EQ(ns(Do::broadcast, {0, 1, 2, 3}), 2000 + 600);
    EXPECT_EQ(ns(Do::broadcast, {0, 1, 2, 3, 4}), 3000 + 600);
    EXPECT_EQ(ns(Do::broadcast, {0}), 1000 + 600);
    EXPECT_EQ(ns(Do::all_gather, {0, 1, 2}), 2000 + 2 * 600);
    EXPECT_EQ(ns(Do::all_gather_v, {0, 1, 2}), 2000 + 2 * 600);
    EXPECT_EQ(ns(Do::gather, {0, 1, 2}), 1000 + 2 * 600);
    EXPECT_EQ(ns(Do::all_to_all, {0, 1, 2}), 1000 + 400);
    EXPECT_EQ(ns(Do::reduce, {0, 1, 2}), 1000 + 2 * 600);
}

TEST(StepCosts, MayLeaveOutWhatCollectivesOfVocabularyPassesCost) {
    const StepCosts costs(load_device("a100"), {.free_vocabulary_collectives = true});
    EXPECT_EQ(costs.transfer_ns(Do::broadcast, {{0, 1}, 0}, kMessage), 0);
    EXPECT_EQ(costs.transfer_ns(Do::all_gather, {{0, 1}, -1, Axis::model}, kMessage), 0);
    EXPECT_GT(costs.transfer_ns(Do::send, {{0, 1}, -1}, kMessage), 0);
    EXPECT_GT(costs.transfer_ns(Do::all_to_all, {{0, 1}, -1, Axis::data}, kMessage), 0);
}

TEST(StepCosts, ReduceMovesTheGradientsOfATiedWeight) {
    PlanOptions options = small_plan();
    options.model.config.tied = true;
    Candidate candidate{.schedule = "1f1b",
                        .layers_per_stage = {2, 2, 2, 2},
                        .mesh = {.pipeline = 4},
                        .microbatches = 8};
    const auto passes = [&](VocabMode mode, int rank) {
        candidate.vocab_mode = mode;
        const UnitCosts units = unit_costs(ModelOnDevice(options), candidate);
        const StepModel step = step_model(options, units, candidate);
        return static_cast<double>(step.costs.pass_ns(rank, {.op = Op::Reduce})) /
               (64000 * 1024 * 4 * units.per_parameter_byte);
    };
    for (const int rank : {0, 3}) EXPECT_NEAR(passes(VocabMode::none, rank), 3, 1e-3);
    EXPECT_NEAR(passes(VocabMode::none, 1), 0, 1e-3);
    for (const int rank : {0, 3}) EXPECT_NEAR(passes(VocabMode::one_barrier, rank), 4 / 4.0, 1e-3);
}

// NCCL's rings: as many adapters of a node send as the group has ranks there.
TEST(StepCosts, ReplicasAddUpTheirGradientsOverRings) {
    DeviceSpec device = load_device("h100");
    device.link_gb_per_s.value = device.link_efficiency.value = 1;
    device.network_gb_per_s.value = 0.1;
    device.network_efficiency.value = 1;
    device.link_latency_us.value = 1;
    device.network_latency_us.value = 2;
    PlannedTrainer trainer{.kernels = KernelYear::y2022};
    const std::vector<int> inside{0, 4}, two_nodes{0, 4, 8, 12}, far{0, 8};
    const auto ns = [&](Do what, std::vector<int> ranks) {
        return StepCosts(device, trainer)
            .transfer_ns(what, {std::move(ranks), -1, Axis::data}, 1200);
    };
    EXPECT_EQ(ns(Do::all_to_all, inside), 1000 + 600);
    EXPECT_EQ(ns(Do::all_to_all, two_nodes), 2000 + 900 / 0.2);
    EXPECT_EQ(ns(Do::all_to_all, far), 2000 + 600 / 0.1);
    // A gather is given one rank's part.
    EXPECT_EQ(ns(Do::all_gather_v, two_nodes), 2000 + 3 * 1200 / 0.2);
    trainer.gradients = DType::bf16;
    EXPECT_EQ(ns(Do::all_to_all, two_nodes), 2000 + 450 / 0.2);
    EXPECT_EQ(ns(Do::all_gather_v, two_nodes), 2000 + 3 * 1200 / 0.2);
    // Newer trainers gather weights while the next step runs.
    trainer.kernels = KernelYear::y2025;
    EXPECT_EQ(ns(Do::all_gather_v, two_nodes), 0);
    // This library's exchange: every rank sends everyone's part through its own adapter.
    trainer.reduction = GradientReduction::all_to_all;
    EXPECT_EQ(ns(Do::all_to_all, two_nodes), 2000 + 900 / 0.1);
}

TEST(StepModel, PassesOfAPublishedRunTakeTheTimesThatItMeasured) {
    // Mean over the middle ranks of the four baseline runs with 4 layers per rank: F 10.574 ms,
    // B 21.130 ms. Constants were fitted to steps of this run and of many others, so passes carry
    // what a step takes besides them.
    PlanOptions options;
    options.device = load_device("a100");
    options.trainer.kernels = KernelYear::y2023;
    options.model = {.name = "4b",
                     .config = {.num_layers = 32,
                                .hidden_size = 3072,
                                .ffn_hidden_size = 12288,
                                .num_attention_heads = 24,
                                .max_position_embeddings = 2048,
                                .vocab_size = 256000,
                                .tied = false}};
    options.gpus = 8;
    options.seq_length = 2048;
    options.global_batch_size = 128;
    Candidate candidate{.schedule = "1f1b",
                        .vocab_mode = VocabMode::none,
                        .layers_per_stage = std::vector<int>(8, 4),
                        .mesh = {.pipeline = 8},
                        .microbatches = 128};
    const UnitCosts units = unit_costs(ModelOnDevice(options), candidate);
    const StepModel plain = step_model(options, units, candidate);
    const auto ms = [](const StepModel& step, int rank, Op op) {
        return static_cast<double>(step.costs.pass_ns(rank, {op, 1, 0})) * 1e-6;
    };
    EXPECT_NEAR(ms(plain, 1, Op::F) + ms(plain, 1, Op::B), 31.704, 2.4);
    EXPECT_NEAR(ms(plain, 1, Op::B) / ms(plain, 1, Op::F), 21.130 / 10.574, 0.08);
    EXPECT_EQ(plain.costs.pass_ns(1, {Op::I, 1, 0}) + plain.costs.pass_ns(1, {Op::W, 1, 0}),
              plain.costs.pass_ns(1, {Op::B, 1, 0}));
    // One barrier: mean F 11.38 ms, B 22.41 ms, and S+T 8.356 ms at this vocabulary, 1.540 ms at an
    // eighth of it.
    candidate.vocab_mode = VocabMode::one_barrier;
    const StepModel sharded = step_model(options, units, candidate);
    EXPECT_NEAR(ms(sharded, 1, Op::F) + ms(sharded, 1, Op::B), 33.79, 1.5);
    EXPECT_NEAR(ms(sharded, 1, Op::S) + ms(sharded, 1, Op::T), 8.356, 0.3);
    options.model.config.vocab_size = 32000;
    const StepModel small = step_model(options, units, candidate);
    EXPECT_NEAR(ms(small, 1, Op::S) + ms(small, 1, Op::T), 1.540, 0.15);
}

TEST(StepModel, EveryParameterIsCountedOnceOverAllRanks) {
    PlanOptions options = small_plan();
    for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
        const Candidate candidate{.schedule = "1f1b",
                                  .vocab_mode = mode,
                                  .layers_per_stage = {2, 2, 2, 2},
                                  .mesh = {.pipeline = 4},
                                  .microbatches = 16};
        int64_t weights = 0;
        for (const PlannedMemory& rank :
             step_model(options, unit_costs(ModelOnDevice(options), candidate), candidate)
                 .persistent) {
            weights += rank.weights;
            EXPECT_EQ(rank.optimizer, 6 * rank.weights);
            EXPECT_EQ(rank.gradients, 2 * rank.weights);
        }
        EXPECT_EQ(weights, 2 * parameter_count(options.model.config));
    }
    // A tied weight on two ranks is stored by both; sharded, each shard serves both layers.
    options.model.config.tied = true;
    for (const bool sharded : {false, true}) {
        const Candidate candidate{.schedule = "1f1b",
                                  .vocab_mode = sharded ? VocabMode::one_barrier : VocabMode::none,
                                  .layers_per_stage = {2, 2, 2, 2},
                                  .mesh = {.pipeline = 4},
                                  .microbatches = 16};
        int64_t weights = 0;
        for (const PlannedMemory& rank :
             step_model(options, unit_costs(ModelOnDevice(options), candidate), candidate)
                 .persistent) {
            weights += rank.weights;
        }
        const int64_t table = options.model.config.vocab_size * options.model.config.hidden_size;
        EXPECT_EQ(weights, 2 * (parameter_count(options.model.config) + (sharded ? 0 : table)));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
