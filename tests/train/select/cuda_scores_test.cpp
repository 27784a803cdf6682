// SPDX-License-Identifier: Apache-2.0
// Scoring on CUDA devices: what the host finds.
#include "src/train/select/sample_scores.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/runtime/cuda_devices.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

struct DeviceScore {
    SampleSums sums;
    std::vector<float> hidden;
};

std::vector<DeviceScore> scores_on(const ModelConfig& config, int ranks,
                                   const std::function<std::unique_ptr<Device>()>& make) {
    constexpr int kCount = 5;
    const Batch batch = random_batch(config, kCount, 1, 3, 0.2);
    std::vector<DeviceScore> found(kCount);
    std::mutex mutex;
    World::threads(ranks, {.timeout_seconds = 60}).run([&](Communicator& world) {
        const std::unique_ptr<Device> device = make();
        const StepPlan plan = plan_step(config,
                                        {.ranks = ranks,
                                         .operators = &device->operators(),
                                         .communication = device->communication_order()},
                                        {},
                                        {.microbatches = 2,
                                         .micro_batch_size = 2,
                                         .evaluation = true,
                                         .optimizer = false,
                                         .training = false,
                                         .records = {.columns = {TokenRecord::margin}},
                                         .hidden_sums = true});
        TrainedRank rank(world, *device, plan, {.seed = 7});
        SampleScores scores(rank, {.micro_batch_size = 2,
                                   .seq_length = config.seq_length,
                                   .microbatches = 2,
                                   .mesh = plan.mesh(),
                                   .loss_rank = plan.schedule.output.owners().front()});
        for (int64_t first = 0; first < 3; first += 2) {
            scores.load(first, kCount, [&](int64_t i, Sample& row) {
                std::ranges::copy(batch.tokens[static_cast<size_t>(i)], row.tokens.begin());
                std::ranges::copy(batch.labels[static_cast<size_t>(i)], row.labels.begin());
            });
            scores.run();
            if (!scores.has_results()) continue;
            const std::lock_guard lock(mutex);
            for (int64_t row = 0; row < 4; ++row) {
                if (scores.sample(row) >= kCount) continue;
                DeviceScore& one = found[static_cast<size_t>(scores.sample(row))];
                one.sums = scores.sums(row);
                one.hidden.resize(static_cast<size_t>(config.hidden_size));
                scores.hidden_mean(row, one.hidden);
            }
        }
    });
    return found;
}

TEST(CudaScores, AreThoseOfTheHost) {
    if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
    for (const char* family : {"gpt2", "gemma2"}) {
        const ModelConfig config = small_family(family, 3, 6, 29, true);
        const auto host = scores_on(config, 1, [] { return make_host_device(); });
        for (const int ranks : {1, 2}) {
            SCOPED_TRACE(std::string(family) + " on " + std::to_string(ranks));
            const auto cuda = scores_on(config, ranks, [] {
                return make_cuda_device({.transport = CudaTransport::copies});
            });
            for (size_t i = 0; i < host.size(); ++i) {
                EXPECT_EQ(cuda[i].sums.weight, host[i].sums.weight);
                EXPECT_NEAR(cuda[i].sums.loss, host[i].sums.loss, 1e-4);
                EXPECT_NEAR(cuda[i].sums.margin, host[i].sums.margin, 1e-4);
                for (size_t k = 0; k < host[i].hidden.size(); ++k) {
                    EXPECT_NEAR(cuda[i].hidden[k], host[i].hidden[k], 1e-4);
                }
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
