// SPDX-License-Identifier: Apache-2.0
// Ranks on CUDA devices that share stages (tensor parallelism): the bits of a team whose exchanges
// stop everything, whatever moves the pieces and however many there are; and the host's numbers.
#include "tests/support/full_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "tests/train/cuda_training.hpp"
#include "tests/train/tensor_setup.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// Rows enough for four pieces of each member of a team of two.
void take_four_pieces(TrainingSetup& setup) {
    setup.config.seq_length = setup.config.max_position_embeddings = 32;
    setup.sequences = 8;
    setup.tensor_pieces = 4;
}

/// Every family and mode with both transports and numbers of pieces in a full run, else every
/// family with one of each, few of them by pieces: they have many rows. And meshes of four ranks.
std::vector<CudaTeamCell> cuda_tensor_cells() {
    CudaTeamCells all;
    size_t turn = 0;
    for (const Generator& family : generators()) {
        for (size_t m = 0; m < kEveryVocabMode.size(); ++m) {
            for (size_t i = 0; i < 4; ++i) {
                const bool in_turn =
                    m == turn % kEveryVocabMode.size() && i == turn % 2 + (turn < 2 ? 0 : 2);
                if (!full_run() && !in_turn) continue;
                all.add({.schedule = std::string(family.name),
                         .mode = kEveryVocabMode.at(m),
                         .mesh = {.pipeline = 2, .tensor = 2},
                         .transport = kTransports.at(i % 2),
                         .pieces = i < 2 ? 4 : 1,
                         .recompute = kRecomputes.at((turn + i) % 3)});
            }
        }
        ++turn;
    }
    for (const char* schedule : {"1f1b", "zb-v", "dualpipe-v"}) {
        for (const CudaTransport transport : kTransports) {
            all.add({.schedule = schedule,
                     .mode = kShardedModes.at(turn % kShardedModes.size()),
                     .mesh = {.pipeline = 2, .tensor = 2},
                     .transport = transport,
                     .pieces = turn % 3 == 0 ? 4 : 1,
                     .recompute = kRecomputes.at(turn % 3),
                     .depths = 2});
            ++turn;
        }
    }
    for (const VocabMode mode : kEveryVocabMode) {
        for (const Mesh mesh : {Mesh{1, 1, 2}, Mesh{1, 2, 2}, Mesh{1, 1, 4}}) {
            const CudaTransport transport = kTransports.at(turn++ % 2);
            if (full_run() || turn % 2 == 0) {
                all.add({.schedule = "zb-h1", .mode = mode, .mesh = mesh, .transport = transport});
            }
        }
    }
    return all.cells;
}

class CudaTensorRanks : public CudaTestWithParam<CudaTeamCell> {};

TEST_P(CudaTensorRanks, HaveTheBitsOfATeamThatBlocksAndFollowTheHost) {
    const CudaTeamCell& c = GetParam();
    TrainingSetup setup = tensor_setup(c.schedule, c.mode, c.mesh, "llama", DType::fp32, 2);
    setup.recompute = c.recompute;
    predict_later_tokens(setup, c.depths);
    if (c.pieces > 1) take_four_pieces(setup);
    if (c.pieces > 1 && c.depths > 0) ++setup.sequences;  // so that rows of ranks end within one
    const Training blocking = train_blocking(setup);
#ifdef VOCABPIPE_ON_STAND_IN
    cuda_stand_in::reset_counters();
#endif
    const Training together = train_on(setup, c.transport);
#ifdef VOCABPIPE_ON_STAND_IN
    EXPECT_EQ(cuda_stand_in::counters().blocked_launches, 0U);
#endif
    EXPECT_EQ(first_difference(blocking, together), "");
    EXPECT_EQ(blocking.gradients, together.gradients);
    const Training host = train_on_threads(setup);
    for (size_t step = 0; step < host.losses.size(); ++step) {
        EXPECT_NEAR(together.losses[step], host.losses[step], 2e-5) << step;
    }
    EXPECT_LT(largest_difference(host.gradients, together.gradients), 2e-3);
}

INSTANTIATE_TEST_SUITE_P(Matrix, CudaTensorRanks, ::testing::ValuesIn(cuda_tensor_cells()),
                         [](const auto& info) { return test_name(info.param.name()); });

class CudaTensorRanksOfFamilies : public CudaTestWithParam<std::string> {};

/// With experts, bf16 may choose others than the host does.
TEST_P(CudaTensorRanksOfFamilies, HaveTheBitsOfATeamThatBlocksAndFollowTheHost) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        TrainingSetup setup = tensor_setup("zb-h1", VocabMode::one_barrier,
                                           {.pipeline = 1, .tensor = 2}, GetParam(), dtype, 1);
        if (full_run()) take_four_pieces(setup);
        const Training together = train_on(setup, CudaTransport::copies);
        EXPECT_EQ(first_difference(train_blocking(setup), together), "");
        const bool wide = dtype == DType::fp32;
        if (!wide && setup.config.moe.experts > 0) continue;
        const Training host = train_on_threads(setup);
        EXPECT_NEAR(together.losses[0], host.losses[0], wide ? 2e-5 : 2e-2);
        EXPECT_LT(largest_difference(host.gradients, together.gradients), wide ? 1e-4 : 0.12);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaTensorRanksOfFamilies, ::testing::ValuesIn(tensor_families()),
                         [](const auto& info) { return test_name(info.param); });
INSTANTIATE_TEST_SUITE_P(Experts, CudaTensorRanksOfFamilies,
                         ::testing::Values("mixtral", "qwen2_moe", "dots1"),
                         [](const auto& info) { return test_name(info.param); });

#ifdef VOCABPIPE_ON_STAND_IN
/// Modes, numbers of stages' places and depths in turn; a full run sees each combination several
/// times.
TEST(CudaTensorTeams, HaveTheSameBitsHoweverTheirStreamsAreDelayed) {
    (void)gpus_for_nccl();
    for (uint64_t seed = 0; seed < (full_run() ? 60U : 2U); ++seed) {
        const VocabMode mode = kEveryVocabMode.at((seed + 4) % kEveryVocabMode.size());
        const Mesh mesh{.pipeline = seed % 2 == 0 ? 2 : 1, .tensor = 2};
        const bool predicts = seed % 2 == 0;
        TrainingSetup setup =
            tensor_setup("zb-h1", mode, mesh, predicts ? "llama" : "gpt2", DType::bf16, 1);
        predict_later_tokens(setup, predicts ? 1 : 0);
        expect_same_bits_under_delays(setup, seed);
    }
}

TEST(CudaTensorTeams, WaitForNoStreamAndAllocateNothing) {
    for (const CudaTransport transport : {CudaTransport::copies, CudaTransport::nccl}) {
        (void)gpus_for_nccl();
        TrainingSetup setup = tensor_setup("1f1b", VocabMode::one_barrier,
                                           {.pipeline = 1, .tensor = 2}, "gpt2", DType::fp32, 1);
        const cuda_stand_in::Counters together = counted_in_last_step(setup, transport, 2);
        setup.ranks *= setup.tensor;
        setup.tensor = 1;
        const cuda_stand_in::Counters alone = counted_in_last_step(setup, transport, 2);
        EXPECT_EQ(together.device_synchronisations, alone.device_synchronisations);
        EXPECT_EQ(together.stream_synchronisations, alone.stream_synchronisations);
        EXPECT_EQ(together.event_synchronisations, alone.event_synchronisations);
        EXPECT_EQ(together.blocking_copies, alone.blocking_copies);
        EXPECT_EQ(together.allocations, 0U);
        EXPECT_EQ(together.blocked_launches, 0U);
    }
}
#endif

}  // namespace
}  // namespace vocabpipe::testing
