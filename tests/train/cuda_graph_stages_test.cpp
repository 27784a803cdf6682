// SPDX-License-Identifier: Apache-2.0
// Models of one function on CUDA devices: the host's losses, and the same bits in every cut.
#include "tests/runtime/cuda_devices.hpp"
#include "tests/train/graph_batch.hpp"
#include "tests/train/graph_models.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

namespace vocabpipe::testing {
namespace {

using GpuOfRank = std::function<std::unique_ptr<Device>(int rank)>;

/// Losses of three steps.
std::vector<double> losses_on(const ModelConfig& config, int ranks, const char* schedule,
                              const GpuOfRank& device_of) {
    std::vector<double> losses;
    World::threads(ranks, {.timeout_seconds = 60}).run([&](Communicator& world) {
        const std::unique_ptr<Device> device = device_of(world.rank());
        const StepPlan plan =
            plan_step(config,
                      {.ranks = ranks,
                       .operators = &device->operators(),
                       .communication = device->communication_order()},
                      {.name = schedule, .vocab_mode = VocabMode::none},
                      {.microbatches = kGraphMicrobatches, .micro_batch_size = kGraphSequences});
        TrainedRank rank(world, *device, plan);
        for (uint64_t step = 1; step <= 3; ++step) {
            const GraphBatch batch(config, step);
            rank.train_step(batch.microbatches(), batch.counted(), 1e-2);
            if (world.rank() == 0) losses.push_back(rank.report().loss);
        }
    });
    return losses;
}

class CudaGraphStages : public CudaTestWithParam<GraphModel> {};

TEST_P(CudaGraphStages, FollowTheHostAndHaveTheSameBitsInEveryCut) {
    if (GetParam().name == "TwoTowers") GTEST_SKIP() << "has an operator for hosts alone";
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        ModelConfig config = GetParam().config;
        config.dtype = dtype;
        const std::vector<double> host =
            losses_on(config, 1, "1f1b", [](int) { return make_host_device(); });
        const GpuOfRank gpu = devices(CudaTransport::copies);
        const std::vector<double> alone = losses_on(config, 1, "1f1b", gpu);
        for (size_t i = 0; i < host.size(); ++i) {
            EXPECT_NEAR(alone[i], host[i], dtype == DType::fp32 ? 1e-4 : 5e-2) << i;
        }
        for (const char* const schedule : {"1f1b", "zb-h1"}) {
            const std::vector<double> cut = losses_on(config, 3, schedule, gpu);
            for (size_t i = 0; i < host.size(); ++i) {
                EXPECT_NEAR(cut[i], alone[i], 1e-12 * std::abs(alone[i])) << schedule;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaGraphStages, ::testing::ValuesIn(graph_models()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace vocabpipe::testing
