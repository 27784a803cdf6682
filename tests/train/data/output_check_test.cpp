// SPDX-License-Identifier: Apache-2.0
#include "src/support/output_check.hpp"

#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

#include <sys/stat.h>

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

TEST(OutputCheck, ReplacesNoTextThatSpeaksOfAGraph) {
    const TempFolder folder;
    const std::string header = R"({"__metadata__":{"format":"vocabpipe graph 1"}})";
    std::string ours(8, '\0');
    ours[0] = static_cast<char>(header.size());
    write_file(folder / "ours", ours + header);
    write_file(folder / "notes", "a graph has {\"format\":\"vocabpipe graph 1\"} in it");
    write_file(folder / "short", "8 bytes.");
    OutputCheck check({});
    check.add("--output", folder / "ours", graph_output());
    for (const char* name : {"notes", "short"}) {
        EXPECT_THAT(
            message_of<UsageError>([&] { check.add("--output", folder / name, graph_output()); }),
            HasSubstr("already exists and is not a graph"));
    }
    EXPECT_THAT(message_of<UsageError>(
                    [&] { OutputCheck({}).add("--output", folder / "ours", scores_output()); }),
                HasSubstr("is not a file of scores"));
}

TEST(OutputCheck, ReplacesNoTableSinceNothingInItSaysWhose) {
    const TempFolder folder;
    write_file(folder / "a.npy", "\x93NUMPY");
    write_file(folder / "a.txt", "1 2\n");
    write_file(folder / "empty", "");
    OutputCheck check({});
    for (const char* name : {"a.npy", "a.txt"}) {
        EXPECT_THAT(
            message_of<UsageError>([&] { check.add("--output", folder / name, table_output()); }),
            HasSubstr("already exists, and nothing in it says who wrote it"));
        EXPECT_THROW(check.add("--ids", folder / name, document_ids_output()), UsageError);
    }
    check.add("--output", folder / "empty", table_output());
    check.add("--output", folder / "new", table_output());
}

TEST(OutputCheck, RefusesPipesForWhatIsWrittenInAnyOrder) {
    const TempFolder folder;
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    OutputCheck check({});
    check.add("--metrics", folder / "pipe", metrics_output());
    check.add("--output", "/dev/null", subset_output());
    EXPECT_THAT(
        message_of<UsageError>([&] { check.add("--output", folder / "pipe", subset_output()); }),
        HasSubstr("is a pipe, and ranks write the parts of a subset"));
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
