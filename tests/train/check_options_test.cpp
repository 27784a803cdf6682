// SPDX-License-Identifier: Apache-2.0
#include "src/train/options/check_options.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace vocabpipe::testing
