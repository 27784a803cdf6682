// SPDX-License-Identifier: Apache-2.0
// Pipelines of CUDA devices have the bits of a single rank on the same kind of device, whatever
// moves their messages; and they come near the host's numbers.
#include "tests/runtime/cuda_devices.hpp"
#include "tests/support/full_run.hpp"
#include "tests/support/pipeline_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace vocabpipe::testing {
namespace {

struct CudaRun {
    ScheduleCase schedule;
    CudaTransport transport = CudaTransport::copies;
    friend void PrintTo(const CudaRun& run, std::ostream* out) {
        PrintTo(run.schedule, out);
        *out << (run.transport == CudaTransport::nccl ? " nccl" : " copies");
    }
};

std::vector<CudaRun> every_run() {
    std::vector<CudaRun> runs;
    for (const CudaTransport transport : {CudaTransport::copies, CudaTransport::nccl}) {
        for (const ScheduleCase& c : every_schedule(std::array{1, 2, 3, 4})) {
            // A fast run takes every family and mode with one number of ranks and one transport.
            const size_t turn = c.turn / 4;
            const bool in_turn =
                c.turn % 4 == turn % 4 && (turn % 2 == 1) == (transport == CudaTransport::nccl);
            if (!full_run() && !in_turn) continue;
            if (transport == CudaTransport::nccl && c.ranks > gpus_for_nccl()) continue;
            runs.push_back({c, transport});
        }
    }
    return runs;
}

class CudaEquality : public CudaTestWithParam<CudaRun> {};

TEST_P(CudaEquality, LossAndGradientsHaveTheBitsOfASingleRankOnTheDevice) {
    const auto& [c, transport] = GetParam();
    for (const StepCase& step : step_cases(c, 1)) {
        SCOPED_TRACE(::testing::Message() << step);
        const Schedule schedule = schedule_of(c, step);
        const int layers = std::max(1, schedule.stages + (step.microbatches % 2 == 0 ? 1 : -1));
        for (const ModelConfig& config :
             {tiny_gpt(layers, step), tiny_predicting(layers, step, 1)}) {
            const Batch batch = random_batch(config, schedule.microbatches, step.sequences, 5);
            const ModelPartition partition = even_partition(config, schedule, step.sequences);
            Gradients expected;
            {
                const std::unique_ptr<Device> device = single_rank_device(transport, c.ranks);
                expected = run_single_rank(config, partition, schedule, batch, 7, *device);
            }
            World world = World::threads(c.ranks, {.timeout_seconds = 30});
            const Gradients actual = run_pipeline(world, config, partition, schedule, batch, 7,
                                                  {.make_device = devices(transport)});
            EXPECT_EQ(first_difference(expected, actual), "");
            if (HasFailure()) return;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Threads, CudaEquality, ::testing::ValuesIn(every_run()),
                         [](const auto& info) {
                             return test_name(info.param.schedule) +
                                    (info.param.transport == CudaTransport::nccl ? "_nccl"
                                                                                 : "_copies");
                         });

/// Every tensor of both; returns the largest distance, relative to its tensor's norm.
double expect_near(const Gradients& wanted, const Gradients& found, DType type) {
    // Both stay within 5e-6 of a tensor's norm of exact arithmetic in fp32, and within 0.1 in bf16
    // (tests/model/oracle_test.cpp); so within twice that of each other.
    const double bound = type == DType::fp32 ? 1e-5 : 0.2;
    double worst = 0;
    for (const auto& [name, want] : wanted.by_name) {
        double error = 0;
        double norm = 0;
        const std::vector<float>& got = found.by_name.at(name);
        for (size_t i = 0; i < want.size(); ++i) {
            const double e = got[i] - static_cast<double>(want[i]);
            error += e * e;
            norm += static_cast<double>(want[i]) * want[i];
        }
        worst = std::max(worst, std::sqrt(error / norm));
        EXPECT_LE(std::sqrt(error / norm), bound) << name;
    }
    return worst;
}

class CudaAgainstHost : public CudaTestWithParam<DType> {};

TEST_P(CudaAgainstHost, AWholeModelDiffersByTheRoundingOfItsSumsOnly) {
    const ModelConfig config =
        tiny_gpt(4, {.vocab_size = 53, .dtype = GetParam(), .tied = true, .loss_terms = true}, 32);
    const Schedule schedule = make_schedule(
        "1f1b",
        {.ranks = 2, .microbatches = 5, .vocab_mode = VocabMode::one_barrier, .vocab_size = 53});
    const Batch batch = random_batch(config, 5, 2, 5);
    const ModelPartition partition = even_partition(config, schedule, 2);
    World world = World::threads(2, {.timeout_seconds = 30});
    const Gradients host = run_pipeline(world, config, partition, schedule, batch, 7);
    const Gradients cuda = run_pipeline(world, config, partition, schedule, batch, 7,
                                        {.make_device = devices(CudaTransport::copies)});
    const double worst = expect_near(host, cuda, GetParam());
    ASSERT_EQ(host.losses.size(), cuda.losses.size());
    for (size_t j = 0; j < host.losses.size(); ++j) {
        EXPECT_NEAR(cuda.losses[j], host.losses[j],
                    (GetParam() == DType::fp32 ? 2e-6 : 1e-2) * host.losses[j]);
    }
    std::printf("worst tensor %g of its norm\n", worst);
}

TEST_P(CudaAgainstHost, NativeReductionsDifferByTheOrderOfTheirSumsOnly) {
    if (gpus_for_nccl() < 3) GTEST_SKIP() << "NCCL needs 3 GPUs for 3 ranks";
    const ModelConfig config =
        tiny_gpt(6, {.vocab_size = 53, .dtype = GetParam(), .tied = true, .loss_terms = true}, 32);
    for (const VocabMode mode : kShardedModes) {
        // The last stage is on rank 0: a ring that ends there does not add in rank order.
        const Schedule schedule = make_schedule(
            "v-half", {.ranks = 3, .microbatches = 4, .vocab_mode = mode, .vocab_size = 53});
        const Batch batch = random_batch(config, 4, 2, 5);
        const ModelPartition partition = even_partition(config, schedule, 2);
        World world = World::threads(3, {.timeout_seconds = 30});
        PipelineOptions options{.make_device = devices(CudaTransport::nccl)};
        const Gradients ordered =
            run_pipeline(world, config, partition, schedule, batch, 7, options);
        options.reductions = Reductions::native;
        const Gradients native =
            run_pipeline(world, config, partition, schedule, batch, 7, options);
        [[maybe_unused]] const double distance = expect_near(ordered, native, GetParam());
#ifdef VOCABPIPE_ON_STAND_IN  // whose rings round at every hop; rounding to bf16 may hide it
        if (GetParam() == DType::fp32) {
            EXPECT_GT(distance, 0) << "the option does nothing";
        }
#endif
    }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaAgainstHost, ::testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) {
                             return info.param == DType::bf16 ? "Bf16" : "Fp32";
                         });

}  // namespace
}  // namespace vocabpipe::testing
