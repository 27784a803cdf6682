// SPDX-License-Identifier: Apache-2.0
// What files promise where power is lost, calls are interrupted, or a disk fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "src/select/files/tensor_output.hpp"
#include "src/support/input_file.hpp"
#include "src/support/output_file.hpp"
#include "src/support/safetensors/reader.hpp"
#include "src/support/safetensors/writer.hpp"
#include "src/train/log/metrics_file.hpp"
#include "tests/support/file_calls.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// No byte is that of another place nearby.
std::string some_bytes(size_t size) {
    std::string bytes(size, '\0');
    uint32_t state = 1;
    for (char& byte : bytes) {
        state = state * 1664525U + 1013904223U;
        byte = static_cast<char>(state >> 24U);
    }
    return bytes;
}

TEST(DurableOutputFile, IsDurableBeforeItGetsItsName) {
    const TempFolder folder;
    write_file(folder / "x", "old");
    const FileCalls calls(folder / ".");
    OutputFile file(folder / "x");
    file.write("new");
    file.publish();
    EXPECT_THAT(calls.list(), ElementsAre("create x.partial", "write x.partial", "sync x.partial",
                                          "rename x.partial x"));
    EXPECT_THAT(calls.torn(), IsEmpty());
}

TEST(DurableOutputFile, MayBeDurableLongBefore) {
    const TempFolder folder;
    const FileCalls calls(folder / ".");
    OutputFile file(folder / "x");
    file.write("new");
    file.sync();
    EXPECT_EQ(calls.unsynced(), std::set<std::string>{"."});
    file.publish();
    EXPECT_EQ(calls.count("sync x.partial"), 1U);
    EXPECT_THAT(calls.torn(), IsEmpty());
}

TEST(DurableOutputFile, IsWholeWhereSignalsInterruptItsWrites) {
    const TempFolder folder;
    const std::string bytes = some_bytes((size_t{1} << 20) + 70'001);  // its buffer, and a rest
    {
        FileCalls calls(folder / ".");
        calls.interrupt(9'973);
        OutputFile file(folder / "x");
        file.write(bytes);
        file.publish();
        EXPECT_EQ(file.size(), std::ssize(bytes));
    }
    EXPECT_TRUE(read_file(folder / "x") == bytes);
}

TEST(DurableOutputFile, ThatCannotBeMadeDurableKeepsTheOlderOne) {
    const TempFolder folder;
    write_file(folder / "x", "old");
    {
        FileCalls calls(folder / ".");
        calls.fail_syncs(EIO);
        OutputFile file(folder / "x");
        file.write("new");
        EXPECT_THAT(message_of<OutputFileError>([&] { file.publish(); }),
                    HasSubstr("x: cannot write: Input/output error"));
    }
    EXPECT_EQ(folder.names(), std::set<std::string>{"x"});
    EXPECT_EQ(read_file(folder / "x"), "old");
}

TEST(DurableFolder, IsDurableInItsParentAndSoAreThoseAboveIt) {
    const TempFolder folder;
    std::filesystem::create_directory(folder / "there");
    for (const char* path : {"there/a/b/c", "there/d/e/", "there/f"}) {
        const FileCalls calls(folder / ".");
        make_directories(folder / path, "--save");
        EXPECT_THAT(calls.list(), ::testing::Contains("sync there")) << path;
        EXPECT_THAT(calls.unsynced(), IsEmpty()) << path;
    }
    const FileCalls calls(folder / ".");
    make_directories(folder / "there/a/b", "--save");
    EXPECT_THAT(calls.list(), IsEmpty());
}

TEST(DurableFolder, IsOneOnFileSystemsThatSyncNoFolders) {
    const TempFolder folder;
    FileCalls calls(folder / ".");
    for (const int error : {EINVAL, ENOTSUP, EBADF}) {
        calls.fail_syncs(error);
        EXPECT_NO_THROW(sync_folder_of(folder / "x")) << error;
    }
    calls.fail_syncs(EIO);
    EXPECT_THAT(message_of<OutputFileError>([&] { sync_folder_of(folder / "x"); }),
                HasSubstr("/: cannot write: Input/output error"));
}

TEST(DurableSharedFile, HasWhatWasWrittenAtItsPlaceWhereSignalsInterruptTheWrites) {
    const TempFolder folder;
    const std::string bytes = some_bytes(5'003);
    const std::span<const std::byte> all = std::as_bytes(std::span(bytes));
    {
        FileCalls calls(folder / ".");
        calls.interrupt(97);
        SharedOutputFile file = SharedOutputFile::create(folder / "x", bytes.size());
        file.write_at(2'000, all.subspan(2'000));
        file.write_at(0, all.first(2'000));
        EXPECT_EQ(calls.unsynced(), (std::set<std::string>{".", "x"}));
        file.sync();
        EXPECT_EQ(calls.unsynced(), std::set<std::string>{"."});
        const InputFile in(folder / "x");
        std::string part(3'000, ' ');
        in.read(1'000, std::as_writable_bytes(std::span(part)));
        EXPECT_TRUE(part == bytes.substr(1'000, 3'000)) << "reads are interrupted, too";
    }
    EXPECT_TRUE(read_file(folder / "x") == bytes);
}

TEST(DurableSharedFile, IsDurableWhenItIsWrittenFromAText) {
    const TempFolder folder;
    const FileCalls calls(folder / ".");
    write_new_file(folder / "x", "text");
    EXPECT_THAT(calls.list(), ElementsAre("create x", "write x", "sync x"));
    EXPECT_EQ(read_file(folder / "x"), "text");
}

TEST(DurableSharedFile, SaysThatItIsNotButWhereNothingCanBe) {
    const TempFolder folder;
    FileCalls calls(folder / ".");
    SharedOutputFile file = SharedOutputFile::create(folder / "x", 1);
    calls.fail_syncs(EINVAL);  // a device
    EXPECT_NO_THROW(file.sync());
    for (const int error : {EIO, ENOSPC, EDQUOT}) {
        calls.fail_syncs(error);
        EXPECT_THAT(message_of<OutputFileError>([&] { file.sync(); }),
                    HasSubstr("x: cannot write: "))
            << error;
    }
}

TEST(DurableTensors, OfAllRanksAreDurableBeforeTheirFileGetsItsNameAndThenTheName) {
    const TempFolder folder;
    FileCalls calls(folder / ".");
    calls.interrupt(3);
    World::threads(3).run([&](Communicator& world) {
        TensorOutput output(world, folder / "x",
                            {{.name = "a", .type = StoredType::I64, .shape = {3}}}, {});
        output.write<int64_t>("a", world.rank(), std::vector<int64_t>{world.rank() + 5});
        output.publish();
    });
    EXPECT_EQ(calls.count("sync x.partial"), 3U) << "a host's own writes by that host";
    EXPECT_THAT(calls.torn(), IsEmpty());
    EXPECT_THAT(calls.unsynced(), IsEmpty());
    const std::string bytes = read_file(folder / "x");
    EXPECT_EQ(bytes.substr(bytes.size() - 24), bytes_of<int64_t>({5, 6, 7}));
}

TEST(DurableMetrics, ThatLoseTheirLaterStepsAreWholeAtAnyTime) {
    const TempFolder folder;
    const std::string first = "{\"step\":1}\n";
    write_file(folder / "metrics", first + "{\"step\":2}\n");
    const FileCalls calls(folder / ".");
    { MetricsFile file(folder / "metrics", 1); }
    EXPECT_THAT(calls.list(),
                ElementsAre("create metrics.partial", "write metrics.partial",
                            "sync metrics.partial", "rename metrics.partial metrics"));
    EXPECT_THAT(calls.torn(), IsEmpty());
    EXPECT_EQ(read_file(folder / "metrics"), first);
}

}  // namespace
}  // namespace vocabpipe::testing
