// SPDX-License-Identifier: Apache-2.0
// Data files that somebody cuts off, overwrites or replaces while they are read.
#include "src/train/data/data_file.hpp"

#include "src/train/data/watched_files.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/token_dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using testing::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;
using testing::TempFolder;
using testing::write_file;

std::string zeros(size_t bytes) {
    return std::string(bytes, '\0');
}

TEST(DataFile, ThatIsCutOffIsAnErrorOfTheReadThatNeedsTheRest) {
    const TempFolder folder;
    const std::string path = folder / "a.bin";
    write_file(path, zeros(100'000));
    const auto tokens = open_tokens(path, DataFormat::raw_u16);
    std::vector<int32_t> some(1000);
    tokens->read(49'000, some);
    std::filesystem::resize_file(path, 1000);
    tokens->read(100, std::span(some).first(400));
    EXPECT_THAT(message_of<InputFileError>([&] { tokens->read(49'000, some); }),
                AllOf(HasSubstr(path), HasSubstr("had 100000 bytes"), HasSubstr("was truncated")));
    EXPECT_THAT(message_of<InputFileError>([&] { tokens->read(400, some); }),
                AllOf(HasSubstr(path), HasSubstr("ends at byte 1000")));
}

TEST(DataFile, ValuesThatStandInARowAreReadInBlocks) {
    const TempFolder folder;
    std::string bytes = "x";  // what follows is not aligned
    for (int32_t i = 0; i < 20'000; ++i) bytes += bytes_of<int32_t>({i});
    write_file(folder / "a", bytes);
    const DataFile file(folder / "a");
    FileArray<int32_t> values(file, 1, 20'000);
    for (int32_t i = 0; i < 20'000; ++i) ASSERT_EQ(values.next(), i);
    EXPECT_EQ(file.load<int32_t>(1 + 4 * 777), 777);
}

TEST(TokenDataset, NamesTheFileThatWasOverwrittenAfterItWasChecked) {
    const TempFolder folder;
    const std::string path = folder / "a.bin";
    write_file(path, zeros(2000));
    const TokenDataset samples(open_tokens(path, DataFormat::raw_u16),
                               {.seq_length = 10, .shuffle = false, .vocab_size = 257});
    Sample sample(10);
    samples.sample(0, sample);
    write_file(path, std::string(2000, '\xff'));
    EXPECT_THAT(message_of<InputFileError>([&] { samples.sample(3, sample); }),
                AllOf(HasSubstr(path), HasSubstr("token 30 is 65535 now"),
                      HasSubstr("--vocab-size 257"), HasSubstr("was overwritten")));
}

TEST(WatchedFiles, SayOnceWhatBecameOfThem) {
    const TempFolder folder;
    for (const char* name : {"kept", "written", "replaced", "removed"}) {
        write_file(folder / name, "1234");
    }
    WatchedFiles watched({folder / "kept", folder / "written", folder / "replaced",
                          folder / "removed", folder / "never there"});
    EXPECT_THAT(watched.changes(), IsEmpty());
    write_file(folder / "written", "123");
    write_file(folder / "new", "1234");
    std::filesystem::rename(folder / "new", folder / "replaced");
    std::filesystem::remove(folder / "removed");
    EXPECT_THAT(watched.changes(), ElementsAre(HasSubstr("written: was written to"),
                                               HasSubstr("replaced: was replaced by another file"),
                                               HasSubstr("removed: was removed")));
    EXPECT_THAT(watched.changes(), IsEmpty());
}

}  // namespace
}  // namespace vocabpipe
