// SPDX-License-Identifier: Apache-2.0
// The stage of every family without experts under check_gradients(), which users have for theirs.
#include "vocabpipe/check_gradients.hpp"

#include "tests/model/model_cases.hpp"
#include "vocabpipe/model_rank.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

class StageGradients : public ::testing::TestWithParam<std::string> {};

TEST_P(StageGradients, AgreeWithFiniteDifferences) {
    const ModelConfig config = small_family(GetParam(), 2, 5, 19, false);
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        Schedule alone{.ranks = 1, .stages = 1, .microbatches = 1, .rank_of_stage = {0}};
        alone.input = alone.output = ShardMap::whole(config.vocab_size, 1, 0);
        const std::unique_ptr<Device> device = make_host_device();
        ModelRank model(config,
                        {.layers_per_stage = {config.num_layers},
                         .micro_batch_size = 2,
                         .recompute = recompute},
                        alone, 0, *device);
        Context ctx({.threads = 1, .poll = {}});
        model.initialise(ctx, 3);
        const GradientCheck worst = check_gradients(*model.modules(nullptr).stages.front(),
                                                    {.sequences = 2,
                                                     .seq_length = config.seq_length,
                                                     .hidden_size = config.hidden_size,
                                                     .vocab_size = config.vocab_size});
        EXPECT_LT(worst.error, 2e-3) << worst.name;
        EXPECT_GT(worst.error, 0);
    }
}

/// A choice of experts jumps.
std::vector<std::string> families_without_experts() {
    std::vector<std::string> names = model_families();
    std::erase_if(names, [](const std::string& name) {
        return small_family(name, 2, 5, 19, false).moe.experts > 0;
    });
    return names;
}

INSTANTIATE_TEST_SUITE_P(Families, StageGradients, ::testing::ValuesIn(families_without_experts()),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace vocabpipe::testing
