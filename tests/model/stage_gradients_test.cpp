// SPDX-License-Identifier: Apache-2.0
// The stage of every family without experts under check_gradients(), which users have for theirs.
#include "vocabpipe/check_gradients.hpp"

#include "tests/model/model_cases.hpp"
#include "tests/model/whole_model_stage.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

class StageGradients : public ::testing::TestWithParam<std::string> {};

TEST_P(StageGradients, AgreeWithFiniteDifferences) {
    const ModelConfig config = small_family(GetParam(), 2, 5, 19, false);
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        const GradientCheck worst = WholeModelStage(config, recompute).check(1e-2);
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
