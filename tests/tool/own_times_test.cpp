// SPDX-License-Identifier: Apache-2.0
// docs/plan-with-your-own-times.md: its figures.
#include "tests/tool/run_program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kExamples = VOCABPIPE_EXAMPLES;

TEST(OwnTimes, TakeAsLongAsTheDocumentSays) {
    const Outcome whole =
        run_shell("'" VOCABPIPE_PROGRAM "' simulate 1f1b --pp 4 --microbatches 16 --pass-times '" +
                  kExamples + "/pass_times.csv'");
    EXPECT_THAT(whole.output,
                AllOf(HasSubstr("\nstep          631.7 ms"), HasSubstr("\nbubble        40.44 %"),
                      HasSubstr("\nbecause       rank 3 "), HasSubstr("573.4 ms")));
    const TempFolder folder;
    const Outcome shared = run_shell(
        "cd '" + (folder / "") + "' && grep -v ',[ST],' '" + kExamples +
        "/pass_times.csv' >t.csv && for rank in 0 1 2 3; do printf "
        "\"$rank,S,-,1400000\\n$rank,T,-,2725000\\n\"; done >>t.csv && '" VOCABPIPE_PROGRAM
        "' simulate 1f1b --vocab-mode one_barrier --pp 4 --microbatches 16 --latency 20000 "
        "--pass-times t.csv");
    EXPECT_THAT(shared.output,
                AllOf(HasSubstr("\nstep          433.9 ms"), HasSubstr("\nbubble        13.29 %")));
}

}  // namespace
}  // namespace vocabpipe::testing
