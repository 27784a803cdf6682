// SPDX-License-Identifier: Apache-2.0
// How many kernels and products a training step launches on one GPU: what decides whether CUDA
// graphs would pay (benchmarks/results/gpu-notes.md). The numbers are printed; the bounds keep them
// from creeping up.
#include "src/train/data/megatron_writer.hpp"
#include "src/train/run/trainer.hpp"
#include "tests/runtime/cuda_devices.hpp"
#include "tests/train/data/temp_folder.hpp"

#include <gtest/gtest.h>

#include <iostream>

namespace vocabpipe::testing {
namespace {

class CudaLaunches : public ::testing::Test {
protected:
    void SetUp() override {
        MegatronWriter writer(folder_ / "set", 23);
        std::vector<int32_t> tokens(2000);
        for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 23);
        writer.append(tokens);
        writer.finish();
    }

    /// Launches of everything from the start to the end of training.
    [[nodiscard]] int64_t of_run(int layers, int microbatches, int steps) const {
        TrainOptions options;
        options.model.num_layers = layers;
        options.model.hidden_size = 32;
        options.model.ffn_hidden_size = 64;
        options.model.num_attention_heads = 2;
        options.model.seq_length = options.model.max_position_embeddings = 16;
        options.model.vocab_size = 23;
        options.model.dtype = DType::bf16;
        options.model.tied = true;
        options.data.path = {folder_ / "set"};
        options.micro_batch_size = 1;
        options.global_batch_size = microbatches;
        options.train_iters = steps;
        options.threads_per_rank = 1;
        options.ranks_are_threads = true;
        options.make_device = [](const RankPlacement&) {
            return make_cuda_device({.ordinal = 0, .transport = CudaTransport::copies});
        };
        cuda_stand_in::reset_counters();
        ::testing::internal::CaptureStdout();
        World::threads(1, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
            train(communicator, options);
        });
        (void)::testing::internal::GetCapturedStdout();
        const cuda_stand_in::Counters counters = cuda_stand_in::counters();
        return static_cast<int64_t>(counters.kernel_launches + counters.matmuls);
    }
    [[nodiscard]] int64_t of_step(int layers, int microbatches) const {
        return of_run(layers, microbatches, 3) - of_run(layers, microbatches, 2);
    }

    TempFolder folder_;
};

TEST_F(CudaLaunches, OfAGptStepStayWithinTheirBounds) {
    const int64_t small = of_step(2, 2);
    const int64_t more_layers = of_step(4, 2);
    const int64_t more_microbatches = of_step(2, 3);
    const int64_t both = of_step(4, 3);
    const int64_t layer = (both - more_microbatches - more_layers + small) / 2;
    const int64_t layer_and_step = (more_layers - small) / 2 - 2 * layer;
    const int64_t ends = more_microbatches - small - 2 * layer;
    const int64_t step = small - 2 * (ends + 2 * layer) - 2 * layer_and_step;
    const auto total = [&](int64_t layers, int64_t microbatches) {
        return step + layers * layer_and_step + microbatches * (ends + layers * layer);
    };
    std::cout << "launches: " << layer << " per layer and microbatch, " << ends
              << " per microbatch besides, " << layer_and_step << " per layer and step, " << step
              << " per step besides; with 8 microbatches " << total(12, 8) << " for 12 layers, "
              << total(48, 8) << " for 48\n";
    EXPECT_LE(layer, 26);
    EXPECT_LE(ends, 20);
    EXPECT_LE(layer_and_step, 12);
    EXPECT_LE(step, 11);
}

}  // namespace
}  // namespace vocabpipe::testing
