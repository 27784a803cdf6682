// SPDX-License-Identifier: Apache-2.0
// Ranks on CUDA devices that share sequences (context parallelism): the same bits whatever moves
// the panels and however streams are delayed, and the host's numbers.
#include "tests/support/full_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "tests/train/context_setup.hpp"
#include "tests/train/cuda_training.hpp"
#include "tests/train/samples_of_lengths.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// Both transports have equal bits, and losses and gradients are those of the host.
void expect_follows_the_host(const TrainingSetup& setup, bool wide) {
    const Training together = train_on(setup, CudaTransport::copies);
    EXPECT_EQ(first_difference(train_on(setup, CudaTransport::nccl), together), "");
    const Training host = train_on_threads(setup);
    for (size_t step = 0; step < host.losses.size(); ++step) {
        EXPECT_NEAR(together.losses[step], host.losses[step], wide ? 2e-5 : 2e-2) << step;
    }
    EXPECT_LT(largest_difference(host.gradients, together.gradients), wide ? 2e-3 : 0.12);
}

class CudaContextRanks : public CudaTestWithParam<ContextForm> {};

TEST_P(CudaContextRanks, FollowTheHostOnMeshes) {
    for (const Mesh mesh : {Mesh{.context = 2}, Mesh{.pipeline = 2, .context = 2},
                            Mesh{.tensor = 2, .context = 2}, Mesh{.context = 4}}) {
        for (const char* const schedule : {"1f1b", "zb-h1"}) {
            TrainingSetup setup =
                context_setup(schedule, VocabMode::one_barrier, mesh, "llama", DType::fp32, 2);
            setup.config.num_query_groups = 4 * mesh.tensor;
            setup.context_exchange.form = GetParam();
            setup.documents = mesh.context == 4;
            expect_follows_the_host(setup, true);
            if (!full_run()) break;
        }
    }
}

TEST_P(CudaContextRanks, FollowTheHostInFamilies) {
    for (const char* const family : {"gpt2", "gemma2", "qwen3", "gpt_neox", "mixtral"}) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            TrainingSetup setup =
                context_setup("zb-h1", VocabMode::two_barriers, {.context = 2}, family, dtype, 1);
            // With experts, bf16 may choose others than the host does.
            if (dtype == DType::bf16 && setup.config.moe.experts > 0) continue;
            setup.context_exchange.form = GetParam();
            setup.documents = true;
            if (setup.config.moe.experts > 0) setup.config.moe.aux_loss = 0.5F;
            expect_follows_the_host(setup, dtype == DType::fp32);
        }
    }
}

TEST_P(CudaContextRanks, FollowTheHostWithMicrobatchesOfSeveralLengths) {
    const SamplesOfLengths samples({.lengths = {12, 12, kContextLength, 4, 4, 4, 12},
                                    .ids = kContextVocabulary,
                                    .seq_length = kContextLength});
    for (const Mesh mesh : {Mesh{.pipeline = 2}, Mesh{.pipeline = 2, .context = 2}}) {
        TrainingSetup setup =
            context_setup("zb-h1", VocabMode::one_barrier, mesh, "llama", DType::fp32, 3);
        setup.context_exchange.form = GetParam();
        setup.samples = &samples;
        setup.shorter_lengths = {12, 4};
        expect_follows_the_host(setup, true);
    }
}

#ifdef VOCABPIPE_ON_STAND_IN
TEST_P(CudaContextRanks, HaveTheSameBitsHoweverTheirStreamsAreDelayed) {
    (void)gpus_for_nccl();
    for (uint64_t seed = 0; seed < (full_run() ? 40U : 2U); ++seed) {
        const Mesh mesh{.pipeline = seed % 2 == 0 ? 2 : 1, .context = seed % 4 < 2 ? 2 : 4};
        TrainingSetup setup =
            context_setup("zb-h1", VocabMode::one_barrier, mesh, "gpt2", DType::bf16, 1);
        setup.context_exchange = {.form = GetParam(), .panels = 2};
        setup.config.num_attention_heads = 8;
        expect_same_bits_under_delays(setup, seed);
    }
}
#endif

INSTANTIATE_TEST_SUITE_P(Forms, CudaContextRanks,
                         ::testing::Values(ContextForm::allgather, ContextForm::a2a),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace vocabpipe::testing
