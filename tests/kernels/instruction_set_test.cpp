// SPDX-License-Identifier: Apache-2.0
// Limits of the instructions that the host's kernels use, without which the tests that are limited
// to some would run with all.
#include "kernels/host/instruction_set.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "kernels/host/engine.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::host {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kVariable = "VOCABPIPE_MAX_INSTRUCTION_SET";

class InstructionSetLimit : public ::testing::Test {
protected:
    InstructionSetLimit() {
        if (const char* const given = std::getenv(kVariable)) before_ = given;
    }
    ~InstructionSetLimit() override {
        before_ ? ::setenv(kVariable, before_->c_str(), 1) : ::unsetenv(kVariable);
    }

private:
    std::optional<std::string> before_;  ///< what a limited run of all tests has
};

TEST_F(InstructionSetLimit, IsTheSmallerOneOfTheVariableAndTheCpu) {
    const InstructionSet cpu = cpu_instruction_set();
    ::unsetenv(kVariable);
    EXPECT_EQ(used_instruction_set(), cpu);
    const std::pair<const char*, InstructionSet> limits[] = {
        {"plain", InstructionSet::plain},
        {"avx2", InstructionSet::avx2},
        {"avx512", InstructionSet::avx512},
        {"avx512_bf16", InstructionSet::avx512_bf16},
    };
    for (const auto& [name, set] : limits) {
        ::setenv(kVariable, name, 1);
        EXPECT_EQ(used_instruction_set(), std::min(cpu, set)) << name;
        Context ctx({.threads = 1, .poll = {}});
        EXPECT_EQ(ctx.engine().instruction_set(), std::min(cpu, set)) << name;
    }
}

TEST_F(InstructionSetLimit, NamesASetThatThereIs) {
    ::setenv(kVariable, "sse", 1);
    EXPECT_THAT([] { (void)used_instruction_set(); },
                ThrowsMessage<UsageError>(HasSubstr("is 'sse'; it may be plain, avx2")));
}

}  // namespace
}  // namespace vocabpipe::kernels::host
