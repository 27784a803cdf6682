// SPDX-License-Identifier: Apache-2.0
#include "src/support/output_file.hpp"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "src/support/partial_file.hpp"
#include "src/support/safetensors/writer.hpp"
#include "src/train/data/megatron_writer.hpp"
#include "tests/train/data/closed_input.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/file_size_limit.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using testing::ClosedInput;
using testing::FileSizeLimit;
using ::testing::HasSubstr;
using testing::TempFolder;
using Names = std::set<std::string>;

std::span<const std::byte> bytes(std::string_view text) {
    return std::as_bytes(std::span(text));
}

TEST(MakeDirectories, MakesThePathHoweverItIsWrittenAndTakesOneThatIsThere) {
    const TempFolder folder;
    for (const char* path : {"a/b/c/", "a/b/./d", "a//b/e//", "a", "f"}) {
        EXPECT_NO_THROW(make_directories(folder / path, "--save")) << path;
        EXPECT_TRUE(std::filesystem::is_directory(folder / path)) << path;
    }
    testing::write_file(folder / "file", "");
    EXPECT_THAT(
        testing::message_of<UsageError>([&] { make_directories(folder / "file/below", "--save"); }),
        HasSubstr("/file is a file, but must be a folder; choose another path"));
}

TEST(OutputFile, SaysHowItsErrorsAreMended) {
    const auto message = [](int error) {
        return testing::message_of<OutputFileError>(
            [&] { throw_output_error("d/x", "cannot write", error); });
    };
    const std::string space = "; free some space or choose another folder";
    const std::string rights = "; choose a folder that you can write to";
    EXPECT_EQ(message(ENOSPC), "d/x: cannot write: No space left on device" + space);
    EXPECT_EQ(message(EDQUOT), "d/x: cannot write: Disk quota exceeded" + space);
    EXPECT_EQ(message(ENOENT),
              "d/x: cannot write: No such file or directory; create the folder first");
    EXPECT_EQ(message(EACCES), "d/x: cannot write: Permission denied" + rights);
    EXPECT_EQ(message(EROFS), "d/x: cannot write: Read-only file system" + rights);
    EXPECT_EQ(message(ENXIO),
              "d/x: cannot write: No such device or address; nothing reads this pipe; start its "
              "reader first");
    EXPECT_EQ(message(EIO), "d/x: cannot write: Input/output error");
}

TEST(OutputFile, AppearsOnlyWhenPublished) {
    const TempFolder folder;
    {
        OutputFile file(folder / "x");
        file.write(bytes("abc"));
        EXPECT_EQ(folder.names().count("x"), 0u);
        file.publish();
        EXPECT_EQ(file.size(), 3);
    }
    EXPECT_EQ(folder.names(), Names{"x"});
    EXPECT_EQ(testing::read_file(folder / "x"), "abc");
}

TEST(OutputFile, LeavesNothingAndTheOlderFileIfNotPublished) {
    const TempFolder folder;
    testing::write_file(folder / "x", "old");
    {
        OutputFile file(folder / "x");
        file.write(bytes(std::string(3'000'000, 'n')));
        file.sync();
    }
    EXPECT_EQ(folder.names(), Names{"x"});
    EXPECT_EQ(testing::read_file(folder / "x"), "old");
}

// Folders stay, as they are no files of a killed run.
TEST(OutputFile, TriesAHundredAndOneNamesOfItsTemporaryFile) {
    const TempFolder folder;
    const std::string begin = folder / ("x.partial-" + std::to_string(::getpid()) + "-");
    for (int i = 0; i < 100; ++i) std::filesystem::create_directory(begin + std::to_string(i));
    {
        OutputFile file(folder / "x");
        file.write(bytes("abc"));
        file.publish();
    }
    EXPECT_EQ(testing::read_file(folder / "x"), "abc");
    std::filesystem::create_directory(begin + "100");
    EXPECT_THAT(testing::message_of<Error>([&] { const OutputFile file(folder / "x"); }),
                HasSubstr("x: cannot create"));
    EXPECT_EQ(testing::read_file(folder / "x"), "abc");
}

TEST(OutputFile, TwoWritersOfOneNameDoNotShareATemporaryFile) {
    const TempFolder folder;
    OutputFile first(folder / "x");
    OutputFile second(folder / "x");
    first.write(bytes("first"));
    second.write(bytes("second"));
    first.publish();
    second.publish();
    EXPECT_EQ(testing::read_file(folder / "x"), "second");
    EXPECT_EQ(folder.names(), Names{"x"});
}

TEST(OutputFile, RemovesWhatKilledWritersHaveLeftAndNothingElse) {
    const TempFolder folder;
    OutputFile writing(folder / "x");  // another one, at work
    const Names before = folder.names();
    for (const char* name : {"x.partial-4000000-0", "x.partial-4000001-3"}) {
        testing::write_file(folder / name, "left");
    }
    const Names others{"x.partial", "x.partial-a", "x.partial-4-b", "y.partial-4000000-0"};
    for (const std::string& name : others) testing::write_file(folder / name, "own");
    {
        OutputFile file(folder / "x");
        file.write("new");
        file.publish();
    }
    Names expected = others;
    expected.insert(before.begin(), before.end());
    expected.insert("x");
    EXPECT_EQ(folder.names(), expected);
    writing.write("last");
    writing.publish();
    EXPECT_EQ(testing::read_file(folder / "x"), "last");
}

TEST(OutputFile, FailuresNameFileAndReason) {
    const TempFolder folder;
    EXPECT_THAT(testing::message_of<OutputFileError>([&] { OutputFile(folder / "no/x"); }),
                AllOf(HasSubstr("no/x: cannot create: No such file or directory"),
                      HasSubstr("create the folder")));
    EXPECT_THAT(testing::message_of<OutputFileError>([&] { OutputFile(folder / "."); }),
                HasSubstr("Is a directory"));
    if (::geteuid() != 0) {  // root may write everywhere
        ASSERT_EQ(::chmod((folder / ".").c_str(), 0500), 0);
        EXPECT_THAT(testing::message_of<OutputFileError>([&] { OutputFile(folder / "x"); }),
                    HasSubstr("Permission denied"));
        ::chmod((folder / ".").c_str(), 0700);
    }
}

TEST(OutputFile, ThatCannotBeNamedIsRemoved) {
    const TempFolder folder;
    {
        OutputFile file(folder / "x");
        std::filesystem::create_directory(folder / "x");  // since it was opened
        EXPECT_THAT(testing::message_of<OutputFileError>([&] { file.publish(); }),
                    HasSubstr("x: cannot create: Is a directory"));
    }
    EXPECT_EQ(folder.names(), Names{"x"});
}

TEST(OutputFiles, MayTakeTheNumberOfAClosedStandardInput) {
    const TempFolder folder;
    const ClosedInput closed;
    const auto taken_by = [&](auto&& file) {
        EXPECT_TRUE(ClosedInput::is_taken());
        file.write(bytes("text"));
        file.publish();
    };
    taken_by(OutputFile(folder / "whole"));
    EXPECT_FALSE(ClosedInput::is_taken());
    taken_by(PartialFile(folder / "partial"));
    EXPECT_FALSE(ClosedInput::is_taken());
    {
        SharedOutputFile file = SharedOutputFile::create(folder / "shared", 4);
        EXPECT_TRUE(ClosedInput::is_taken());
        file.write_at(0, bytes("text"));
    }
    EXPECT_FALSE(ClosedInput::is_taken());
    EXPECT_EQ(folder.names(), (Names{"partial", "shared", "whole"}));
    for (const std::string& name : folder.names()) {
        EXPECT_EQ(testing::read_file(folder / name), "text") << name;
    }
}

/// Writes tokens until finished or failed; the .bin needs 2 bytes per token.
void write_tokens(const std::string& prefix, int64_t tokens) {
    MegatronWriter writer(prefix, 1000);
    const std::vector<int32_t> block(1000, 7);
    for (int64_t done = 0; done < tokens; done += 1000) {
        writer.append(block);
        writer.end_document();
    }
    writer.finish();
}

TEST(MegatronWriter, LeavesNothingBehindAtAFileSizeLimit) {
    // Fails while writing, at the last flush of the .bin, and at that of the .idx.
    for (const auto& [limit, tokens] :
         {std::pair<rlim_t, int64_t>{1 << 20, 3'000'000}, {1000, 10'000}, {60, 1000}}) {
        const TempFolder folder;
        std::string message;
        {
            const FileSizeLimit full(limit);
            message = testing::message_of<OutputFileError>(
                [&, tokens = tokens] { write_tokens(folder / "set", tokens); });
        }
        EXPECT_THAT(message, AllOf(HasSubstr("cannot write"), HasSubstr("File too large")));
        EXPECT_EQ(folder.names(), Names{});
    }
}

TEST(MegatronWriter, ThatFailsKeepsAnOlderSet) {
    const TempFolder folder;
    write_tokens(folder / "set", 1000);
    const std::string bin = testing::read_file(folder / "set.bin");
    {
        const FileSizeLimit full(1000);
        EXPECT_THROW(write_tokens(folder / "set", 10'000), OutputFileError);
    }
    EXPECT_EQ(folder.names(), (Names{"set.bin", "set.idx"}));
    EXPECT_EQ(testing::read_file(folder / "set.bin"), bin);
}

TEST(MegatronWriter, WhoseIndexCannotBeNamedRemovesTheTokens) {
    const TempFolder folder;
    {
        MegatronWriter writer(folder / "set", 1000);
        writer.append(std::vector<int32_t>{1, 2, 3});
        std::filesystem::create_directory(folder / "set.idx");
        EXPECT_THROW(writer.finish(), OutputFileError);
    }
    EXPECT_EQ(folder.names(), Names{"set.idx"});
}

TEST(MegatronWriter, LeavesNothingBehindOnAFullDisk) {
    const TempFolder folder;
    if (::mount("tmpfs", (folder / ".").c_str(), "tmpfs", 0, "size=1m") != 0) {
        GTEST_SKIP() << "only root can mount a small disk";
    }
    const auto message =
        testing::message_of<OutputFileError>([&] { write_tokens(folder / "set", 3'000'000); });
    const Names left = folder.names();
    ::umount((folder / ".").c_str());
    EXPECT_THAT(message, AllOf(HasSubstr("set.bin: cannot write: No space left on device"),
                               HasSubstr("free some space")));
    EXPECT_EQ(left, Names{});
}

TEST(SyncFolder, ReportsAFolderThatIsNotThere) {
    const TempFolder folder;
    sync_folder_of(folder / "x");  // the file need not be there
    EXPECT_THAT([&] { sync_folder_of(folder / "none/x"); },
                ::testing::ThrowsMessage<OutputFileError>(
                    AllOf(HasSubstr("none/: cannot open: No such file"), HasSubstr("create"))));
}

}  // namespace
}  // namespace vocabpipe
