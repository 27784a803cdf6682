// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/checkpoint/config_json.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SmolLm3Config, TakesTransformersDefaults) {
    const ModelConfig smollm3 = parsed(rotary("smollm3"));
    EXPECT_EQ(smollm3.rope.theta, 2e6);
    EXPECT_THAT(smollm3.roped, ElementsAre(true, true, true, false));
    EXPECT_THAT(smollm3.windowed, IsEmpty());
    EXPECT_TRUE(smollm3.tied);
    EXPECT_FALSE(smollm3.qkv_bias || smollm3.attention_output_bias || smollm3.mlp_bias);
}

TEST(SmolLm3Config, SaysWhichLayersHaveRotaryPositionsAndWhichAWindow) {
    json smollm = with(rotary("smollm3"), "no_rope_layer_interval", 2);
    EXPECT_THAT(parsed(smollm).roped, ElementsAre(true, false, true, false));
    smollm["use_sliding_window"] = true;
    EXPECT_THAT(parsed(smollm).windowed, IsEmpty());  // sliding_window is not given
    smollm["sliding_window"] = 7;
    EXPECT_THAT(parsed(smollm).windowed, ElementsAre(false, true, false, true));
    smollm["no_rope_layers"] = {0, 1, 1, 1, 0};  // may be longer than the model
    const ModelConfig smollm3 = parsed(smollm);
    EXPECT_THAT(smollm3.roped, ElementsAre(false, true, true, true));
    EXPECT_THAT(smollm3.windowed, ElementsAre(true, false, false, false));
    EXPECT_EQ(printed(smollm3).at("no_rope_layers"), json({0, 1, 1, 1}));
    EXPECT_EQ(printed(smollm3).at("use_sliding_window"), true);
    smollm["no_rope_layers"] = {1, 1, 1, 1};
    EXPECT_THAT(parsed(smollm).roped, IsEmpty());
}

TEST(SmolLm3Config, RefusesByNameWhatIsNotComputed) {
    EXPECT_THAT(refused(with(rotary("smollm3"), "no_rope_layers", {1, 0, 1})),
                HasSubstr("no_rope_layers: has 3 entries, num_hidden_layers is 4"));
    EXPECT_THAT(refused(with(rotary("smollm3"), "no_rope_layers", {1, 2, 1, 1})),
                HasSubstr("no_rope_layers[1]: 2: must be an integer from 0 to 1"));
    EXPECT_THAT(refused(with(rotary("smollm3"), "no_rope_layer_interval", 0)),
                HasSubstr("no_rope_layer_interval: 0"));
}

TEST(SmolLm3Config, IsComparedWithTheRun) {
    EXPECT_THAT(refused_run(parsed(rotary("smollm3")), [](ModelConfig& c) { c.roped.clear(); }),
                HasSubstr("what has no rotary positions (no_rope_layers) is layers 3, but this run "
                          "has no layer; set --model d"));
}

}  // namespace
}  // namespace vocabpipe::testing
