// SPDX-License-Identifier: Apache-2.0
#include "src/train/options/check_options.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

TEST(SharedFlags, DifferWithWhatOnlyAConfigJsonSays) {
    TrainOptions options;
    set_family(options.model, "llama");
    const std::vector<std::string> before = shared_flags(options);
    EXPECT_EQ(before, shared_flags(options));
    options.model.attention_output_bias = options.model.qkv_bias = true;
    EXPECT_NE(before, shared_flags(options));
}

TEST(SharedFlags, AndWhatASavedStepRecordsDifferWithTheContentsOfProductChoices) {
    TrainOptions options;
    options.gpu.product_choices_file = "choices";
    options.gpu.product_choices = "one";
    TrainOptions others = options;
    others.gpu.product_choices_file = "copy of choices";
    EXPECT_EQ(shared_flags(options), shared_flags(others));
    EXPECT_EQ(bit_flags(options), bit_flags(others));
    others.gpu.product_choices = "two";
    EXPECT_NE(shared_flags(options), shared_flags(others));
    EXPECT_NE(bit_flags(options), bit_flags(others));
}

}  // namespace
}  // namespace vocabpipe::testing
