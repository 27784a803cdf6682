// SPDX-License-Identifier: Apache-2.0
#include "src/support/output_check.hpp"

#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TempFolder;
using testing::write_file;

// The flags of programs that run without a GPU: tests/tool/outputs_test.cpp.
TEST(OutputCheck, KnowsProductChoicesByTheirFirstLine) {
    const TempFolder folder;
    write_file(folder / "ours", "VocabPipe product choices 1\nNVIDIA A100\n");
    write_file(folder / "other", "somebody's products\n");
    OutputCheck check({});
    check.add("--time-products", folder / "ours", product_choices_output());
    EXPECT_THAT(message_of<UsageError>([&] {
                    check.add("--time-products", folder / "other", product_choices_output());
                }),
                AllOf(HasSubstr("--time-products"),
                      HasSubstr("other: already exists and is not a --time-products file")));
}

TEST(OutputCheck, LetsEmptyFilesAndDevicesBe) {
    const TempFolder folder;
    write_file(folder / "empty", "");
    OutputCheck check({"/dev/null"});
    check.add("--metrics", folder / "empty", metrics_output());
    check.add("--report", "/dev/null", report_output());
    check.add("--profile", "/dev/null", profile_output());
}

}  // namespace
}  // namespace vocabpipe
