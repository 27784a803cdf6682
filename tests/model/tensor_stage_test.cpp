// SPDX-License-Identifier: Apache-2.0
// What stages that tensor ranks share ask for and refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/host/operators.hpp"
#include "src/model/transformer_stage.hpp"
#include "src/runtime/tile_link/host.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/model/tensor_run.hpp"
#include "tests/support/serial_team.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// GPT-2, N = 64 tokens, h = 32, f = 128, 4 heads of 8: all tensors are multiples of 64 bytes, also
/// in halves and quarters.
ModelConfig stage_config() {
    ModelConfig config = small_model(2, 64, 29, false);
    config.hidden_size = 32;
    config.ffn_hidden_size = 128;
    config.num_attention_heads = 4;
    return config;
}

TransformerStage stage_of(int ranks, Recompute recompute = Recompute::none) {
    return {stage_config(),
            {.layers = {.first = 1, .count = 1},
             .recompute = recompute,
             .tensor = {.rank = 0, .ranks = ranks}},
            kernels::host::operators(),
            {},
            nullptr};
}

TEST(TensorStageBytes, DivideByTheRanksButForWhatIsGathered) {
    constexpr int64_t kFloats = 4;
    const StageBytes one = stage_of(1).bytes();
    EXPECT_EQ(one.weight_gradient_workspace, 0);
    for (const int ranks : {2, 4}) {
        const StageBytes bytes = stage_of(ranks).bytes();
        EXPECT_EQ(ranks * bytes.saved, one.saved);
        EXPECT_EQ(ranks * bytes.for_weight, one.for_weight);
        for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
            const StageBytes whole = stage_of(1, recompute).bytes();
            const StageBytes part = stage_of(ranks, recompute).bytes();
            EXPECT_EQ(ranks * part.saved, whole.saved);
            EXPECT_EQ(ranks * part.recomputed, whole.recomputed);
        }
        const int64_t gathered = 64 * 32 * kFloats;
        const int64_t attention = kernels::host::attention_workspace_bytes({.sequences = 1,
                                                                            .seq_length = 64,
                                                                            .heads = 4 / ranks,
                                                                            .head_size = 8,
                                                                            .kv_heads = 4 / ranks},
                                                                           DType::fp32, 1);
        EXPECT_EQ(bytes.weight_gradient_workspace, gathered);
        // Gradients of heads; own rows of h have as many elements.
        const int64_t scratch = 64 * (32 / ranks) * kFloats + (attention + 63) / 64 * 64;
        EXPECT_EQ(bytes.forward_workspace, scratch + 2 * gathered);
        EXPECT_EQ(bytes.input_gradient_workspace, bytes.forward_workspace);
    }
}

TEST(TensorStage, RefusesWhatItCannotShare) {
    EXPECT_THROW(static_cast<void>(stage_of(3)), UsageError);
    EXPECT_THROW(static_cast<void>(stage_of(0)), UsageError);
}

TEST(TensorStage, RefusesALinkThatIsNotItsTeams) {
    const TensorRun run{.config = stage_config(), .ranks = 2};
    EXPECT_THROW(static_cast<void>(run_rank(run, 0, nullptr)), Error);
    SerialTeam alone(1), others(2);
    EXPECT_THROW(static_cast<void>(run_rank(run, 0, alone.link(0).get())), Error);
    const auto second = others.link(1);
    EXPECT_THROW(static_cast<void>(run_rank(run, 0, second.get())), Error);
}

TEST(TensorStage, NamesTheProductWhoseMemberDoesNotCome) {
    const TensorRun run{.config = stage_config(), .ranks = 2};
    try {
        World::threads(2, {.timeout_seconds = 0.3}).run([&](Communicator& c) {
            if (c.rank() == 1) return;
            const auto link =
                make_host_tile_link(c.transport(), c.wait_options(), {.ranks = {0, 1}, .poll = {}});
            static_cast<void>(run_rank(run, 0, link.get()));
        });
        FAIL() << "no exception";
    } catch (const CommunicationError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0: all-gather for transformer.h.0.attn."),
                                        HasSubstr("waits for piece 0 of member 1 (rank 1)")));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
