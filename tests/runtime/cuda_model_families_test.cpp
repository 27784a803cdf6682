// SPDX-License-Identifier: Apache-2.0
// Every model family through pipelines of CUDA devices, with and without recomputation: the bits of
// a single rank on the same kind of device, which keeps everything.
#include "tests/model/model_cases.hpp"
#include "tests/runtime/cuda_devices.hpp"
#include "tests/support/full_run.hpp"
#include "tests/support/pipeline_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace vocabpipe::testing {
namespace {

constexpr std::array kGranularities{Recompute::none, Recompute::selective, Recompute::full};
/// A full backward, split backwards, V placement, several stages per rank.
constexpr std::array kSchedules{"1f1b", "zb-h1", "v-half", "interleaved"};

struct FamilyRun {
    std::string model;
    Recompute recompute;
    ScheduleCase schedule;
    DType dtype;
    bool tied;
    bool vectors;  ///< heads whose halves are whole vectors; else not even a head is
    CudaTransport transport;
    friend void PrintTo(const FamilyRun& run, std::ostream* out) {
        PrintTo(run.schedule, out);
        *out << (run.dtype == DType::bf16 ? " bf16" : " fp32") << (run.tied ? " tied" : " untied");
    }
};

/// Every model with every granularity; the rest in turn, or in a full run all of the schedules.
std::vector<FamilyRun> every_family_run() {
    std::vector<FamilyRun> runs;
    const std::vector<std::string> families = model_families();
    const auto add = [&](size_t model, Recompute recompute, ScheduleCase schedule) {
        const size_t m = model + schedule.turn;
        const size_t turn = m + static_cast<size_t>(recompute);
        const bool nccl = turn % 4 == 3 && schedule.ranks <= gpus_for_nccl();
        runs.push_back({.model = families[model],
                        .recompute = recompute,
                        .schedule = std::move(schedule),
                        .dtype = turn % 2 == 0 ? DType::fp32 : DType::bf16,
                        .tied = m % 2 == 0,
                        .vectors = turn % 3 != 0,
                        .transport = nccl ? CudaTransport::nccl : CudaTransport::copies});
    };
    size_t cell = 0;
    for (size_t model = 0; model < families.size(); ++model) {
        for (const Recompute recompute : kGranularities) {
            if (!full_run()) {
                add(model, recompute,
                    {.family = kSchedules[cell % kSchedules.size()],
                     .mode = kEveryVocabMode[cell % kEveryVocabMode.size()],
                     .ranks = 2 + static_cast<int>(cell / kSchedules.size() % 2)});
                ++cell;
                continue;
            }
            for (const char* schedule : kSchedules) {
                for (const VocabMode mode : kEveryVocabMode) {
                    for (const int ranks : {2, 3}) {
                        add(model, recompute,
                            {.family = schedule, .mode = mode, .ranks = ranks, .turn = ++cell});
                    }
                }
            }
        }
    }
    return runs;
}

class CudaModelFamilies : public CudaTestWithParam<FamilyRun> {};

TEST_P(CudaModelFamilies, HaveTheBitsOfASingleRankOnTheDevice) {
    const FamilyRun& run = GetParam();
    Schedule schedule =
        schedule_of(run.schedule, {.microbatches = run.schedule.ranks + 1, .vocab_size = 29});
    ModelConfig config = small_family(run.model, schedule.stages + 1, 7, 29, run.tied);
    config.dtype = run.dtype;
    if (run.vectors) config.kv_channels = 16;
    const Batch batch = random_batch(config, schedule.microbatches, 2, 3);
    ModelPartition partition = even_partition(config, schedule, 2);
    // In bf16 the product takes GPT-2's GELU of its unrounded sum, unless GELU alone is recomputed.
    if (!config.gated && run.recompute == Recompute::selective) partition.recompute = run.recompute;
    Gradients expected;
    {
        const std::unique_ptr<Device> device =
            single_rank_device(run.transport, run.schedule.ranks);
        expected = run_single_rank(config, partition, schedule, batch, 7, *device);
    }
    for (const double loss : expected.losses) ASSERT_TRUE(std::isfinite(loss));

    partition.recompute = run.recompute;
    if (run.recompute != Recompute::none) schedule = with_recomputation(schedule);
    World world = World::threads(run.schedule.ranks, {.timeout_seconds = 30});
    EXPECT_EQ(first_difference(expected, run_pipeline(world, config, partition, schedule, batch, 7,
                                                      {.make_device = devices(run.transport)})),
              "");
}

class CudaDocuments : public CudaModelFamilies {};

TEST_P(CudaDocuments, StayApartWithTheBitsOfASingleRankOnTheDevice) {
    const FamilyRun& run = GetParam();
    Schedule schedule =
        schedule_of(run.schedule, {.microbatches = run.schedule.ranks + 1, .vocab_size = 29});
    ModelConfig config = small_family(run.model, schedule.stages + 1, 7, 29, run.tied);
    config.dtype = run.dtype;
    Batch batch = random_batch(config, schedule.microbatches, 2, 3);
    ModelPartition partition = even_partition(config, schedule, 2);
    const CudaTransport transport =
        run.schedule.ranks <= gpus_for_nccl() ? run.transport : CudaTransport::copies;
    const std::unique_ptr<Device> device = single_rank_device(transport, run.schedule.ranks);
    const Gradients without = run_single_rank(config, partition, schedule, batch, 7, *device);
    cut_into_documents(batch, 5);
    const Gradients expected = run_single_rank(config, partition, schedule, batch, 7, *device);
    EXPECT_NE(expected.losses, without.losses) << "no mask arrived";

    partition.recompute = run.recompute;
    schedule = with_recomputation(schedule);
    World world = World::threads(run.schedule.ranks, {.timeout_seconds = 30});
    EXPECT_EQ(first_difference(expected, run_pipeline(world, config, partition, schedule, batch, 7,
                                                      {.make_device = devices(transport)})),
              "");
}

INSTANTIATE_TEST_SUITE_P(
    Threads, CudaDocuments,
    ::testing::Values(
        FamilyRun{
            .model = "llama",
            .recompute = Recompute::full,
            .schedule = {.family = "1f1b", .mode = VocabMode::one_barrier, .ranks = 2},
            .dtype = DType::fp32,
        },
        FamilyRun{
            .model = "gemma2",
            .recompute = Recompute::full,
            .schedule = {.family = "zb-h1", .mode = VocabMode::two_barriers, .ranks = 3},
            .dtype = DType::bf16,
        }),
    [](const auto& info) { return test_name(info.param.model); });

INSTANTIATE_TEST_SUITE_P(Threads, CudaModelFamilies, ::testing::ValuesIn(every_family_run()),
                         [](const auto& info) {
                             const FamilyRun& run = info.param;
                             return test_name(run.model) + "_recompute_" +
                                    test_name(to_string(run.recompute)) + "_" +
                                    test_name(run.schedule);
                         });

}  // namespace
}  // namespace vocabpipe::testing
