// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/flag_names.hpp"

#include <gtest/gtest.h>

namespace vocabpipe::tool {
namespace {

TEST(FlagNames, AreThoseOfTheProgramThatWasCalled) {
    const auto both = [](const char* message) {
        return std::pair(with_flags(message, Caller::vocabpipe),
                         with_flags(message, Caller::train_gpt));
    };
    EXPECT_EQ(both("RuleOptions::group_size 5: must be at most 4"),
              std::pair(std::string("--group-size 5: must be at most 4"),
                        std::string("--group-size 5: must be at most 4")));
    EXPECT_EQ(both("ScheduleOptions::ranks x RuleOptions::chunks 9: must be at most 8"),
              std::pair(std::string("--pp x --chunks 9: must be at most 8"),
                        std::string("--pipeline-model-parallel-size x --chunks 9: must be at most "
                                    "8")));
    EXPECT_EQ(both("OrderSource::name nope: must be one of").first,
              "SCHEDULE nope: must be one of");
    EXPECT_EQ(both("OrderSource::name nope: must be one of").second,
              "--schedule nope: must be one of");
    EXPECT_EQ(both("set ScheduleOptions::ranks").first, "set --pp") << "at the end";
    EXPECT_EQ(both("file.csv:3: F 1::2").first, "file.csv:3: F 1::2");
}

}  // namespace
}  // namespace vocabpipe::tool
