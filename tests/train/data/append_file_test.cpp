// SPDX-License-Identifier: Apache-2.0
#include "src/support/append_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/file_size_limit.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

using testing::FileSizeLimit;
using ::testing::HasSubstr;
using testing::message_of;
using testing::read_file;
using testing::TempFolder;
using testing::write_file;
using Mode = AppendFile::Mode;

const char* const kRecord = "a record of 24 bytes...\n";

TEST(AppendFile, HasEveryRecordAtOnce) {
    const TempFolder folder;
    AppendFile file("--metrics", folder / "x", Mode::begin_anew);
    EXPECT_TRUE(file.is_open());
    EXPECT_EQ(file.path(), folder / "x");
    file.add("one\n");
    EXPECT_EQ(read_file(folder / "x"), "one\n");
    file.add("two\n");
    EXPECT_EQ(read_file(folder / "x"), "one\ntwo\n");
    file.close();
    EXPECT_FALSE(file.is_open());
}

// What is behind the limit is not there, as on a full disk: a part of the record is written.
TEST(AppendFile, EndsWithTheLastWholeRecordWhereOneCannotBeWritten) {
    for (const std::string& before : {std::string(), std::string("older\n")}) {
        const TempFolder folder;
        write_file(folder / "x", before);
        const auto size = static_cast<rlim_t>(before.size());
        // In the second record, one byte before its end, and at its beginning.
        for (const rlim_t limit : {size + 30, size + 47, size + 24}) {
            write_file(folder / "x", before);
            {
                const FileSizeLimit full(limit);
                AppendFile file("--metrics", folder / "x", Mode::go_on);
                file.add(kRecord);
                EXPECT_THAT(message_of<OutputFileError>([&] { file.add(kRecord); }),
                            HasSubstr("/x: cannot write the file: File too large; free space"));
            }
            EXPECT_EQ(read_file(folder / "x"), before + kRecord) << limit;
        }
    }
}

// Longer than the buffer: the first part of it is written by itself.
TEST(AppendFile, TakesALongRecordBackAsWell) {
    const TempFolder folder;
    {
        const FileSizeLimit full(9'000);
        AppendFile file("--metrics", folder / "x", Mode::begin_anew);
        file.add(kRecord);
        EXPECT_THROW(file.add(std::string(10'000, 'x')), OutputFileError);
    }
    EXPECT_EQ(read_file(folder / "x"), kRecord);
}

TEST(AppendFile, BeginsAnewGoesOnOrLeavesAFileThatIsThere) {
    const TempFolder folder;
    write_file(folder / "x", "old\n");
    {
        const AppendFile file("--board", folder / "x", Mode::must_be_new);
        EXPECT_FALSE(file.is_open());
    }
    EXPECT_EQ(read_file(folder / "x"), "old\n");
    AppendFile("--metrics", folder / "x", Mode::go_on).add("new\n");
    EXPECT_EQ(read_file(folder / "x"), "old\nnew\n");
    AppendFile("--metrics", folder / "x", Mode::begin_anew).add("only\n");
    EXPECT_EQ(read_file(folder / "x"), "only\n");
    AppendFile("--board", folder / "y", Mode::must_be_new).add("first\n");
    EXPECT_EQ(read_file(folder / "y"), "first\n");
}

TEST(AppendFile, OfAnotherWriterIsRefusedBeforeItIsEmptied) {
    const TempFolder folder;
    AppendFile file("--metrics", folder / "x", Mode::begin_anew);
    file.add(kRecord);
    for (const Mode mode : {Mode::begin_anew, Mode::go_on}) {
        EXPECT_THAT(message_of<UsageError>([&] { AppendFile("--metrics", folder / "x", mode); }),
                    HasSubstr("--metrics " + (folder / "x") + ": another run is writing it"));
    }
    EXPECT_EQ(read_file(folder / "x"), kRecord);
}

TEST(AppendFile, ThatIsRemovedIsMadeAnewAndRecordsAreTakenBackFromTheNewOne) {
    const TempFolder folder;
    AppendFile file("--metrics", folder / "x", Mode::begin_anew);
    file.add(kRecord);
    file.add(kRecord);
    std::filesystem::remove(folder / "x");
    file.add("new\n");
    EXPECT_EQ(read_file(folder / "x"), "new\n");
    {
        const FileSizeLimit full(10);
        EXPECT_THROW(file.add(kRecord), OutputFileError);
    }
    EXPECT_EQ(read_file(folder / "x"), "new\n");
}

TEST(AppendFile, ThatCannotBeMadeNamesFlagFileAndReason) {
    const TempFolder folder;
    EXPECT_THAT(message_of<OutputFileError>(
                    [&] { AppendFile("--metrics", folder / "no/x", Mode::begin_anew); }),
                HasSubstr("no/x: cannot create the file: No such file or directory; free space or "
                          "choose another place"));
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_THAT(message_of<OutputFileError>(
                    [&] { AppendFile("--metrics", folder / "pipe", Mode::begin_anew); }),
                HasSubstr("; nothing reads this pipe; start its reader first"));
}

}  // namespace
}  // namespace vocabpipe
