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

#include <sys/resource.h>

#include <filesystem>
#include <string>
#include <vector>

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
                AllOf(HasSubstr(path), HasSubstr("token 30 is 65535, but"),
                      HasSubstr("--vocab-size 257"), HasSubstr("was overwritten")));
}

/// Lowers the number of files that the process may have open.
class FewFiles {
public:
    explicit FewFiles(rlim_t most) {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const rlimit limit{most, before_.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    FewFiles(const FewFiles&) = delete;
    FewFiles& operator=(const FewFiles&) = delete;

private:
    rlimit before_{};
};

TEST(DataFile, MayBeOneOfMoreThanMayBeOpen) {
    const TempFolder folder;
    const FewFiles few(64);
    std::vector<DataFile> files;
    for (char i = 0; i < 120; ++i) {
        write_file(folder / std::to_string(i), std::string(10, i));
        files.emplace_back(folder / std::to_string(i));
    }
    write_file(folder / "another", "a descriptor is left");
    for (char i = 0; i < 120; ++i) {
        ASSERT_EQ(files[static_cast<size_t>(i)].load<char>(9), i);
    }
    const DataFile& last = files.back();
    write_file(folder / "new", std::string(10, 'x'));
    std::filesystem::rename(folder / "new", last.path());
    EXPECT_THAT(message_of<InputFileError>([&] { (void)last.load<char>(0); }),
                HasSubstr("119: was replaced by another file; this run has more data files than it "
                          "may have open (ulimit -n), so it opens this one anew for every read"));
    std::filesystem::remove(last.path());
    EXPECT_THAT(message_of<InputFileError>([&] { (void)last.load<char>(0); }),
                HasSubstr("119: cannot open: No such file"));
    EXPECT_EQ(files.front().load<char>(0), 0) << "it was open";
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
