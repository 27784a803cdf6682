// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "src/support/read_whole_file.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/data/data_file.hpp"
#include "src/train/text/text_file.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/data/closed_input.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

TEST(InputFile, ReadsFromAnyPositionAndSaysWhereAFileEnds) {
    const TempFolder folder;
    write_file(folder / "f", "0123456789");
    const InputFile file(folder / "f");
    EXPECT_EQ(file.size(), 10U);
    EXPECT_EQ(file.text(), "0123456789");
    std::string part(3, ' ');
    const auto bytes = std::as_writable_bytes(std::span(part));
    file.read(4, bytes);
    EXPECT_EQ(part, "456");
    EXPECT_THAT(message_of<InputFileError>([&] { file.read(8, bytes); }),
                HasSubstr("f: ends at byte 10"));
    std::filesystem::resize_file(folder / "f", 5);
    EXPECT_THAT(
        message_of<InputFileError>([&] { file.read(4, bytes); }),
        HasSubstr("f: ends at byte 5, but had 10 bytes before; another process changed it"));
}

TEST(InputFile, MayTakeTheNumberOfAClosedStandardInput) {
    const TempFolder folder;
    write_file(folder / "f", "0123456789");
    const ClosedInput closed;
    {
        const InputFile file(folder / "f");
        EXPECT_TRUE(ClosedInput::is_taken());
        EXPECT_EQ(file.text(), "0123456789");
    }
    EXPECT_FALSE(ClosedInput::is_taken());
}

TEST(InputFile, RefusesATextThatWouldTakeTheMemory) {
    const TempFolder folder;
    write_file(folder / "f", "{}");
    std::filesystem::resize_file(folder / "f", kMostTextBytes + 1);  // of holes
    EXPECT_THAT(message_of<InputFileError>([&] { (void)InputFile(folder / "f").text(); }),
                HasSubstr("f: has 100000001 bytes, but a text file may have at most 100000000"));
}

TEST(InputFile, SaysThatItIsAPointerOfGitLfsToWhomeverReadsIt) {
    const TempFolder folder;
    const std::string path = folder / "f";
    const std::string pointer =
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 548105171\n";
    write_file(path, pointer);
    const auto says = HasSubstr(
        path + ": is a Git LFS pointer, not the file itself; run git lfs pull in its repository");
    EXPECT_THAT(message_of<InputFileError>([&] { const InputFile file(path); }), says);
    EXPECT_THAT(message_of<InputFileError>([&] { const DataFile file(path); }), says);
    EXPECT_THAT(message_of<InputFileError>([&] { (void)read_whole_file(path, ""); }), says);
    EXPECT_THAT(message_of<InputFileError>([&] { read_text_file(path, [](auto /*block*/) {}); }),
                says);
    for (const std::string& text :
         {pointer.substr(1), pointer.substr(0, 20), pointer + std::string(1024, ' ')}) {
        write_file(path, text);
        EXPECT_EQ(InputFile(path).text(), text);
    }
}

TEST(InputFile, RefusesWhatIsNoFile) {
    const TempFolder folder;
    const auto refused = [&](const std::string& path) {
        return message_of<InputFileError>([&] { const InputFile file(path); });
    };
    EXPECT_THAT(refused(folder / "none"), HasSubstr("cannot open: No such file"));
    EXPECT_THAT(refused(folder / "."), HasSubstr("not a regular file but a folder"));
    EXPECT_THAT(refused("/dev/null"), HasSubstr("not a regular file"));
    // A disk that cannot read; of memory, that of address 0 is such a place.
    const InputFile memory("/proc/self/environ");
    std::string part(3, ' ');
    EXPECT_THAT(message_of<InputFileError>([&] {
                    memory.read(uint64_t{1} << 40, std::as_writable_bytes(std::span(part)));
                }),
                HasSubstr("/proc/self/environ: "));
}

TEST(Checkpoint, CutWhileItIsReadIsAnErrorAndNoSignal) {
    const CheckpointRun runs;
    TrainOptions options = runs.options();
    options.save = runs.path("saved");
    options.train_iters = 2;
    (void)runs.run(2, options);
    const std::string step = step_folder(options.save, 2);
    const Checkpoint checkpoint(find_checkpoint(options.save, false));
    checkpoint.verify();
    const std::string path = step + "/optimizer.safetensors";
    std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
    EXPECT_THAT(message_of<AgreedError>([&] { checkpoint.verify(); }),
                HasSubstr(path + ": is no longer the same file, or its size changed"));
}

TEST(Checkpoint, WhoseStateIsRemovedMeanwhileIsRefused) {
    const CheckpointRun runs;
    TrainOptions options = runs.options();
    options.save = runs.path("saved");
    options.train_iters = 2;
    (void)runs.run(1, options);
    const CheckpointSource found = find_checkpoint(options.save, false);
    std::filesystem::remove(found.folder + "/training.json");
    EXPECT_THAT(message_of<InputFileError>([&] { const Checkpoint checkpoint(found); }),
                HasSubstr("/training.json: cannot open: No such file"));
}

}  // namespace
}  // namespace vocabpipe::testing
