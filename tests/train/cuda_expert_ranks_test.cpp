// SPDX-License-Identifier: Apache-2.0
// Ranks on CUDA devices that share the experts of layers: the bits of a team whose exchanges stop
// everything, whatever moves the rows and in however many pieces; the host's numbers; and how often
// the host waits for its device.
#include "tests/support/full_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "tests/train/cuda_training.hpp"
#include "tests/train/expert_setup.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// Rows enough for several pieces of each member.
void take_pieces(TrainingSetup& setup) {
    setup.config.seq_length = setup.config.max_position_embeddings = 32;
    setup.expert_pieces = {.dispatch = 2, .combine = 2};
}

/// Every schedule with modes, transports, pieces, recomputation, whole or cut experts and depths in
/// turn; and every mesh.
std::vector<CudaTeamCell> cuda_expert_cells() {
    CudaTeamCells all;
    size_t turn = 0;
    for (const Generator& family : generators()) {
        for (size_t m = 0; m < kEveryVocabMode.size(); ++m) {
            if (!full_run() && m != turn % kEveryVocabMode.size()) continue;
            all.add({.schedule = std::string(family.name),
                     .mode = kEveryVocabMode.at(m),
                     .mesh = {.pipeline = 2, .data = 2, .tensor = 1, .expert = 2},
                     .transport = kTransports.at(turn % 2),
                     .pieces = turn % 4 == 1 ? 2 : 1,
                     .recompute = kRecomputes.at(turn % 3),
                     .expert_tensor = turn / 2 % 2 == 0 ? 1 : 2,
                     .depths = turn % 4 == 2 ? 1 : 0});
        }
        ++turn;
    }
    for (const Mesh mesh : {Mesh{1, 2, 1, 2}, Mesh{1, 4, 1, 4}, Mesh{1, 4, 1, 2}, Mesh{1, 1, 2, 2},
                            Mesh{1, 2, 2, 4}, Mesh{1, 1, 4, 2}}) {
        for (const char* const schedule : {"1f1b", "zb-h1"}) {
            if (!full_run() && turn++ % 2 == 0) continue;
            all.add({.schedule = schedule,
                     .mode = VocabMode::none,
                     .mesh = mesh,
                     .transport = kTransports.at(turn / 2 % 2),
                     .pieces = turn % 4 == 1 ? 2 : 1});
        }
    }
    for (const auto& [mesh, x] :
         {std::pair(Mesh{1, 4, 1, 4}, 2), {Mesh{1, 1, 2, 2}, 2}, {Mesh{1, 2, 2, 4}, 4}}) {
        for (const char* const schedule : {"1f1b", "zb-h1"}) {
            if (!full_run() && turn++ % 2 == 0) continue;
            all.add({.schedule = schedule,
                     .mode = VocabMode::one_barrier,
                     .mesh = mesh,
                     .transport = kTransports.at(turn / 2 % 2),
                     .pieces = turn % 4 == 1 ? 2 : 1,
                     .expert_tensor = x});
        }
    }
    return all.cells;
}

class CudaExpertRanks : public CudaTestWithParam<CudaTeamCell> {};

TEST_P(CudaExpertRanks, HaveTheBitsOfATeamThatBlocksAndFollowTheHost) {
    const CudaTeamCell& c = GetParam();
    TrainingSetup setup =
        expert_setup(c.schedule, c.mode, c.mesh, "mixtral", DType::fp32, 2, c.expert_tensor);
    setup.recompute = c.recompute;
    setup.config.mtp_num_layers = c.depths;
    if (c.pieces > 1) take_pieces(setup);
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
    expect_follows(together, host, 2e-5);
    EXPECT_LT(largest_difference(host.gradients, together.gradients), 2e-3);
}

INSTANTIATE_TEST_SUITE_P(Matrix, CudaExpertRanks, ::testing::ValuesIn(cuda_expert_cells()),
                         [](const auto& info) { return test_name(info.param.name()); });

class CudaExpertRanksOfFamilies : public CudaTestWithParam<std::string> {};

/// In bf16 the device may choose other experts than the host does.
TEST_P(CudaExpertRanksOfFamilies, HaveTheBitsOfATeamThatBlocksAndFollowTheHost) {
    for (const auto& [dtype, x] :
         {std::pair(DType::fp32, 1), {DType::bf16, 1}, {DType::fp32, 2}, {DType::bf16, 2}}) {
        TrainingSetup setup =
            expert_setup("zb-h1", VocabMode::one_barrier, {1, 2, 1, 2}, GetParam(), dtype, 1, x);
        take_pieces(setup);
        const Training together = train_on(setup, CudaTransport::copies);
        EXPECT_EQ(first_difference(train_blocking(setup), together), "");
        if (dtype == DType::bf16) continue;
        const Training host = train_on_threads(setup);
        expect_follows(together, host, 2e-5);
        EXPECT_LT(largest_difference(host.gradients, together.gradients), 1e-4);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaExpertRanksOfFamilies,
                         ::testing::Values("mixtral", "qwen3_moe", "olmoe", "qwen2_moe", "dots1",
                                           "deepseek_v3"),
                         [](const auto& info) { return test_name(info.param); });

/// Rows that find no room take other waves, through the same lists and memory.
TEST(CudaExpertWaves, HaveTheBitsOfATeamThatBlocksAndFollowTheHost) {
    if (const std::string reason = why_no_cuda(); !reason.empty()) GTEST_SKIP() << reason;
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        for (const std::string schedule : {"1f1b", "zb-h1"}) {
            const bool in_fast_run = (recompute == Recompute::none) == (schedule == "1f1b");
            if (!full_run() && !in_fast_run) continue;
            SCOPED_TRACE(schedule);
            TrainingSetup setup = expert_setup(schedule, VocabMode::one_barrier, {1, 2, 1, 2},
                                               "qwen3_moe", DType::fp32, 1);
            take_pieces(setup);
            setup.sequences = 8;
            setup.moe_row_factor = 0.3;
            setup.expert_tensor = schedule == "zb-h1" ? 2 : 1;
            setup.recompute = recompute;
            const Training together = train_on(setup, CudaTransport::copies);
            EXPECT_EQ(first_difference(train_blocking(setup), together), "");
            expect_follows(together, train_on_threads(setup), 2e-5);
        }
    }
}

#ifdef VOCABPIPE_ON_STAND_IN
TEST(CudaExpertTeams, HaveTheSameBitsHoweverTheirStreamsAreDelayed) {
    (void)gpus_for_nccl();
    for (uint64_t seed = 0; seed < (full_run() ? 60U : 4U); ++seed) {
        const VocabMode mode = kEveryVocabMode.at((seed + 4) % kEveryVocabMode.size());
        const Mesh mesh{.pipeline = seed % 2 == 0 ? 2 : 1, .data = 2, .tensor = 1, .expert = 2};
        TrainingSetup setup = expert_setup("zb-h1", mode, mesh, "qwen2_moe", DType::bf16, 1);
        if (seed % 2 == 1) setup.moe_row_factor = 0.5;
        if (seed % 4 > 1) setup.expert_tensor = 2;
        expect_same_bits_under_delays(setup, seed);
    }
}

/// Per layer with experts, microbatch and rank, besides what a model without experts waits for, and
/// the sums of routers, which a rank reads once a step.
TEST(CudaExpertTeams, WaitOnceForEachLayerAndMicrobatch) {
    (void)gpus_for_nccl();
    for (const CudaTransport transport : {CudaTransport::copies, CudaTransport::nccl}) {
        const char* const schedule = transport == CudaTransport::nccl ? "zb-h1" : "1f1b";
        for (const Mesh& mesh : {Mesh{1, 2, 1, 2}, Mesh{1, 2, 1, 1}, Mesh{2, 2, 1, 2}}) {
            SCOPED_TRACE(name_of(transport) + " e = " + std::to_string(mesh.expert));
            TrainingSetup setup =
                expert_setup(schedule, VocabMode::one_barrier, mesh, "mixtral", DType::fp32, 1);
            const cuda_stand_in::Counters experts = counted_in_last_step(setup, transport, 3);
            const auto layers = static_cast<uint64_t>(setup.config.num_layers);
            const auto microbatches = static_cast<uint64_t>(setup.microbatches);
            setup.config = tensor_model("llama", false);
            setup.config.num_layers = static_cast<int>(layers);
            setup.config.vocab_size = kExpertVocabulary;
            setup.expert = 1;
            const cuda_stand_in::Counters none = counted_in_last_step(setup, transport, 3);
            const auto replicas = static_cast<uint64_t>(mesh.data);
            const auto ranks = static_cast<uint64_t>(mesh.size());
            EXPECT_EQ(experts.stream_synchronisations - none.stream_synchronisations,
                      layers * microbatches * replicas + ranks);
            EXPECT_EQ(experts.device_synchronisations, none.device_synchronisations);
            EXPECT_EQ(experts.event_synchronisations, none.event_synchronisations);
            EXPECT_EQ(experts.blocking_copies, none.blocking_copies);
            EXPECT_EQ(experts.allocations, 0U);
            EXPECT_EQ(experts.blocked_launches, 0U);
        }
    }
}

/// Also while others wait on the host for what all members chose. Some calls are those of a rank's
/// start.
TEST(CudaExpertTeams, EndWhateverCallOfAMemberFails) {
    using ::testing::AnyOf;
    TrainingSetup setup =
        expert_setup("1f1b", VocabMode::none, {2, 2, 1, 2}, "mixtral", DType::fp32, 3);
    setup.moe_row_factor = 0.5;
    take_pieces(setup);
    cuda_stand_in::set_device_count(setup.ranks * setup.replicas);
    int failures = 0;
    for (const CudaTransport transport : {CudaTransport::copies, CudaTransport::nccl}) {
        for (unsigned seed = 0; seed < (full_run() ? 100U : 10U); ++seed) {
            std::minstd_rand random(seed + 1);
            random.discard(10);
            const int failing = static_cast<int>(random() % 4);
            const uint64_t call = 300 + random() % 4000;
            SCOPED_TRACE(::testing::Message() << "call " << call << " of rank " << failing);
            setup.make_device = [&](int rank) {
                if (rank == failing) {
                    cuda_stand_in::fail_call_of_this_thread(cudaErrorLaunchFailure, call);
                }
                return make_cuda_device(team_device_options(transport, rank));
            };
            const auto begin = std::chrono::steady_clock::now();
            try {
                (void)train_on_threads(setup);
            } catch (const Error& error) {
                ++failures;
                EXPECT_THAT(error.exit_code(), AnyOf(ExitCode::device, ExitCode::communication));
            }
            EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
        }
    }
    EXPECT_GT(failures, 15) << "most of the 20 runs are hit";
}
#endif

}  // namespace
}  // namespace vocabpipe::testing
