// SPDX-License-Identifier: Apache-2.0
// Data sets where power is lost while they are written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "src/train/data/llmc_writer.hpp"
#include "src/train/data/megatron_writer.hpp"
#include "tests/support/file_calls.hpp"
#include "tests/train/data/temp_folder.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

void write_set(const std::string& prefix, const std::vector<int32_t>& tokens) {
    MegatronWriter writer(prefix, 1000);
    writer.append(tokens);
    writer.finish();
}

TEST(DurableDataSet, IsDurableBeforeItsTokensGetTheirNameAndTheIndexIsLast) {
    const TempFolder folder;
    const FileCalls calls(folder / ".");
    write_set(folder / "set", {1, 2, 3});
    EXPECT_THAT(calls.list_after_writing(),
                ElementsAre("sync set.bin.partial", "sync set.idx.partial",
                            "rename set.bin.partial set.bin", "rename set.idx.partial set.idx",
                            "remove set.idx.partial", "sync ."));
    EXPECT_THAT(calls.torn(), IsEmpty());
    EXPECT_THAT(calls.unsynced(), IsEmpty());
}

TEST(DurableDataSet, NeverHasTheIndexOfAnOlderOneBesideItsTokens) {
    const TempFolder folder;
    write_set(folder / "set", {1, 2, 3});
    const FileCalls calls(folder / ".");
    write_set(folder / "set", {4, 5});
    EXPECT_THAT(calls.list_after_writing(),
                ElementsAre("sync set.bin.partial", "sync set.idx.partial", "remove set.idx",
                            "rename set.bin.partial set.bin", "rename set.idx.partial set.idx",
                            "remove set.idx.partial", "sync ."));
    EXPECT_THAT(calls.torn(), IsEmpty());
    EXPECT_EQ(read_file(folder / "set.bin"), bytes_of<uint16_t>({4, 5}));
}

void write_weighed_set(const std::string& prefix, const std::vector<int32_t>& tokens) {
    MegatronWriter writer(prefix, 1000, LossWeightType::u8);
    writer.append(tokens, std::vector<float>(tokens.size(), 1));
    writer.finish();
}

TEST(DurableDataSet, NeverHasTheLossWeightsOfAnOlderOneBesideItsTokens) {
    const TempFolder folder;
    write_weighed_set(folder / "set", {1, 2, 3});
    const FileCalls calls(folder / ".");
    write_weighed_set(folder / "set", {4, 5});
    EXPECT_THAT(
        calls.list_after_writing(),
        ElementsAre("sync set.bin.partial", "sync set.idx.partial", "sync set.weights.partial",
                    "remove set.idx", "remove set.weights", "rename set.bin.partial set.bin",
                    "rename set.weights.partial set.weights", "rename set.idx.partial set.idx",
                    "remove set.idx.partial", "sync ."));
    EXPECT_THAT(calls.torn(), IsEmpty());
    EXPECT_THAT(calls.unsynced(), IsEmpty());
}

TEST(DurableDataSet, ThatCannotHaveItsLossWeightsLeavesNoTokens) {
    const TempFolder folder;
    {
        MegatronWriter writer(folder / "set", 1000, LossWeightType::u8);
        writer.append(std::vector<int32_t>{1});
        std::filesystem::create_directory(folder / "set.weights");
        EXPECT_ANY_THROW(writer.finish());
    }
    EXPECT_THAT(folder.names(), ElementsAre("set.weights"));
}

TEST(DurableDataSet, ThatCannotHaveItsIndexLeavesNoTokens) {
    const TempFolder folder;
    const FileCalls calls(folder / ".");
    {
        MegatronWriter writer(folder / "set", 1000);
        writer.append(std::vector<int32_t>{1});
        std::filesystem::create_directory(folder / "set.idx");
        EXPECT_ANY_THROW(writer.finish());
    }
    EXPECT_THAT(calls.list_after_writing(),
                ElementsAre("remove set.idx.partial", "remove set.bin.partial"));
}

TEST(DurableDataSet, HasTheSameBytesWhereSignalsInterruptTheWrites) {
    const TempFolder folder;
    std::vector<int32_t> tokens(3000);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 997);
    write_set(folder / "whole", tokens);
    {
        FileCalls calls(folder / ".");
        calls.interrupt(101);
        write_set(folder / "parts", tokens);
    }
    for (const char* end : {".bin", ".idx"}) {
        EXPECT_TRUE(read_file(folder / "parts" + end) == read_file(folder / "whole" + end)) << end;
    }
}

TEST(DurableDataSet, OfLlmcIsDurableBeforeItGetsItsName) {
    const TempFolder folder;
    const FileCalls calls(folder / ".");
    LlmcWriter writer(folder / "set.bin", 1000, 2);
    writer.append(std::vector<int32_t>{1, 2});
    writer.finish();
    EXPECT_THAT(calls.list_after_writing(),
                ElementsAre("sync set.bin.partial", "rename set.bin.partial set.bin"));
    EXPECT_THAT(calls.torn(), IsEmpty());
}

}  // namespace
}  // namespace vocabpipe::testing
