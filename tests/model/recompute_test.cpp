// SPDX-License-Identifier: Apache-2.0
// What R makes again are the bits that F had made, for every family, granularity and place in the
// pipeline.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/host/operators.hpp"
#include "src/model/transformer_stage.hpp"
#include "tests/model/model_cases.hpp"
#include "vocabpipe/model_rank.hpp"

namespace vocabpipe::testing {
namespace {

using Memory = std::vector<std::byte>;

/// Aligned memory full of NaN.
class NanMemory {
public:
    NanMemory(Device& device, int64_t bytes)
        : memory_(device.allocate(static_cast<uint64_t>(bytes), "a test's memory")) {
        clear();
    }
    void clear() { std::ranges::fill(memory_.bytes(), std::byte{0xff}); }
    [[nodiscard]] Bytes bytes() const { return memory_.bytes(); }
    [[nodiscard]] Memory copy() const { return {bytes().begin(), bytes().end()}; }

private:
    DeviceMemory memory_;
};

class Recomputation : public ::testing::TestWithParam<ModelCase> {};

TEST_P(Recomputation, MakesTheBitsOfTheForwardAgain) {
    const ModelCase& c = GetParam();
    const std::unique_ptr<Device> device = make_host_device();
    Context ctx({.threads = 1, .poll = {}, .operators = &device->operators()});
    Schedule schedule{.ranks = 1, .stages = 3, .microbatches = 1, .rank_of_stage = {0, 0, 0}};
    schedule.input = schedule.output = ShardMap::whole(c.config.vocab_size, 1, 0);
    const Batch batch = c.batch();
    const Microbatch microbatch = batch.microbatches().front();
    for (const Recompute granularity : {Recompute::none, Recompute::selective, Recompute::full}) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            SCOPED_TRACE(::testing::Message()
                         << static_cast<int>(granularity) << " " << static_cast<int>(dtype));
            ModelConfig config = c.config;
            config.dtype = dtype;
            const ModelPartition partition{.layers_per_stage = {1, 0, config.num_layers - 1},
                                           .micro_batch_size = c.sequences,
                                           .recompute = granularity};
            ModelRank model(config, partition, schedule, 0, *device);
            model.initialise(ctx, 5);
            const int64_t n = microbatch.size();
            const auto boundary_bytes = n * config.hidden_size * size_of(dtype);
            const int predicted = config.predicted_tokens();
            NanMemory embedded(*device, boundary_bytes);
            NanMemory x(*device, boundary_bytes * predicted);
            NanMemory y(*device, boundary_bytes * predicted);
            const auto rows = [&](const NanMemory& memory) {
                return Tensor(memory.bytes().data(), n, config.hidden_size, dtype);
            };
            model.input()->embed(ctx, microbatch, rows(x));
            model.input()->embed(ctx, microbatch, rows(embedded));
            const std::vector<StageModule*> stages = model.modules().stages;
            for (StageModule* stage : stages) {
                const bool predicts_later = stage == stages.back() && predicted > 1;
                const StageBytes bytes = stage->bytes();
                EXPECT_TRUE(granularity != Recompute::none || bytes.recomputed == 0);
                EXPECT_EQ(granularity == Recompute::full && bytes.saved != 0,
                          granularity == Recompute::full && predicts_later);
                NanMemory saved(*device, bytes.saved);
                NanMemory recomputed(*device, bytes.recomputed);
                NanMemory workspace(*device, bytes.forward_workspace);
                Activations activations{.saved = saved.bytes(), .recomputed = recomputed.bytes()};
                Tensor out = rows(y);
                if (predicts_later) {
                    activations.embedded = rows(embedded);
                    out.rows = n * predicted;
                }
                stage->forward(ctx, microbatch, rows(x), out, activations, workspace.bytes());
                const Memory saved_before = saved.copy();
                const Memory made = recomputed.copy();
                recomputed.clear();
                workspace.clear();
                stage->recompute(ctx, microbatch, rows(x), activations, workspace.bytes());
                EXPECT_TRUE(recomputed.copy() == made);
                EXPECT_TRUE(saved.copy() == saved_before);
                std::swap(x, y);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Recomputation, ::testing::ValuesIn(model_cases()), name_of_model);

TEST(RecomputationBytes, AreWhatTheGranularitySays) {
    // Llama, one layer, N = 6 tokens, h = 16, f = 40, 4 + 2 + 2 heads of 6. Everything is a
    // multiple of 64 bytes, or rounded up to one.
    const ModelConfig config = small_family("llama", 3, 6, 29, false);
    const auto bytes = [&](Recompute granularity) {
        return TransformerStage(config,
                                {.layers = {.first = 1, .count = 1},
                                 .sequences = 1,
                                 .threads = 1,
                                 .recompute = granularity},
                                kernels::host::operators(), {}, nullptr)
            .bytes();
    };
    const int64_t norms = 2 * (6 * 16 * 4 + 64);  // outputs, and statistics in one line each
    const int64_t activation = 6 * 40 * 4;
    const int64_t qkv = 6 * 48 * 4, lse = 128, attention = 6 * 24 * 4, x_mid = 6 * 16 * 4;
    const int64_t fc = 6 * 80 * 4;
    const int64_t all = norms + activation + qkv + lse + attention + x_mid + fc;
    EXPECT_EQ(bytes(Recompute::none).saved, all);
    EXPECT_EQ(bytes(Recompute::selective).recomputed, norms + activation);
    EXPECT_EQ(bytes(Recompute::selective).saved, all - norms - activation);
    EXPECT_EQ(bytes(Recompute::full).recomputed, all);
}

}  // namespace
}  // namespace vocabpipe::testing
