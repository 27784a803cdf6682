// SPDX-License-Identifier: Apache-2.0
#include "src/imported/megatron_timers.hpp"

#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace vocabpipe::imported {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Lines in the form that Timers.log() prints for the option `all`; the figures are made up.
const std::string kLog =
    " iteration        2/     100 | elapsed time per iteration (ms): 500.0 |\n"
    "times across ranks (ms):\n"
    "  forward-backward:\n"
    "     rank  0: 480.00\n"
    "     rank  1: 481.00\n"
    "  forward-compute:\n"
    "     rank  0: 80.00\n"
    "     rank  1: 120.00\n"
    "  backward-compute:\n"
    "     rank  0: 160.00\n"
    "     rank  1: 240.00\n"
    " iteration        3/     100 | elapsed time per iteration (ms): 500.0 |\n"
    "times across ranks (ms):\n"
    "  forward-compute:\n"
    "     rank  0: 88.00\n"
    "     rank  1: 120.00\n"
    "  backward-compute:\n"
    "     rank  0: 160.00\n"
    "     rank  1: 240.00\n";

TEST(MegatronTimers, AreMeansOfIterationsByMicrobatch) {
    ASSERT_TRUE(is_megatron_log(kLog));
    EXPECT_FALSE(is_megatron_log("(min, max) time across ranks (ms):\n"));
    EXPECT_EQ(megatron_pass_times(kLog, "log", 8),
              "rank,op,stage,ns\n0,F,0,10500000\n0,B,0,20000000\n1,F,1,15000000\n1,B,1,30000000\n");
}

TEST(MegatronTimers, NameWhatIsMissing) {
    const auto refused = [](const std::string& text, const std::string& what) {
        EXPECT_THAT([&] { return megatron_pass_times(text, "log", 8); },
                    ThrowsMessage<InputFileError>(HasSubstr(what)))
            << text;
    };
    refused("times across ranks (ms):\n", "log: has no forward-compute of ranks; log with");
    refused("  forward-compute:\n     rank  0: 3\n", "log: rank 0 lacks forward-compute or");
    refused("  forward-compute:\n     rank  0: 0.00\n", "log:2: \"rank  0: 0.00\": must be");
    refused("  forward-compute:\n     rank  x: 1\n", "log:2: ");
}

}  // namespace
}  // namespace vocabpipe::imported
