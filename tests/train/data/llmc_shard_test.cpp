// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <tuple>

#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/read_all.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/open_tokens.hpp"

namespace vocabpipe {
namespace {

using testing::bytes_of;
using ::testing::HasSubstr;
using testing::read_all;
using testing::TempFolder;

std::string shard(int32_t magic, int32_t version, int32_t count, const std::string& tokens) {
    std::string bytes = bytes_of<int32_t>({magic, version, count});
    bytes.resize(1024, '\0');
    return bytes + tokens;
}

std::string gpt2(std::initializer_list<uint16_t> tokens) {
    return shard(20240520, 1, static_cast<int32_t>(tokens.size()), bytes_of<uint16_t>(tokens));
}

TEST(LlmcShard, ReadsBothFamilies) {
    const TempFolder folder;
    testing::write_file(folder / "gpt2.bin", gpt2({1, 2, 50256}));
    testing::write_file(folder / "llama.bin",
                        shard(20240801, 7, 2, bytes_of<uint32_t>({128000, 128255})));
    const auto two = open_tokens(folder / "gpt2.bin");
    EXPECT_EQ(read_all(*two), (std::vector<int32_t>{1, 2, 50256}));
    EXPECT_EQ(two->info().format, "llm.c GPT-2 shard");
    EXPECT_EQ(two->info().documents, -1);
    const auto three = open_tokens(folder / "llama.bin");
    EXPECT_EQ(read_all(*three), (std::vector<int32_t>{128000, 128255}));
    EXPECT_EQ(three->info().type, TokenType::u32);
}

TEST(LlmcShard, JoinsTheShardsOfAPatternInSortedOrderAndOfAListAsGiven) {
    const TempFolder folder;
    testing::write_file(folder / "train_000002.bin", gpt2({5}));
    testing::write_file(folder / "train_000000.bin", gpt2({1, 2}));
    testing::write_file(folder / "train_000001.bin", gpt2({}));
    testing::write_file(folder / "train_000003.bin", gpt2({6, 7, 8}));
    const auto all = open_tokens(folder / "train_*.bin");
    EXPECT_EQ(read_all(*all), (std::vector<int32_t>{1, 2, 5, 6, 7, 8}));
    EXPECT_EQ(all->info().files.size(), 4);
    std::vector<int32_t> across(3);
    all->read(1, across);
    EXPECT_EQ(across, (std::vector<int32_t>{2, 5, 6}));
    EXPECT_EQ(all->place(2).file, folder / "train_000002.bin");
    EXPECT_EQ(all->place(5).position, 2);
    EXPECT_EQ(
        read_all(*open_tokens((folder / "train_000003.bin") + "," + (folder / "train_000000.bin"))),
        (std::vector<int32_t>{6, 7, 8, 1, 2}));
}

TEST(LlmcShard, BadFilesAreNamedWithTheReason) {
    const std::vector<std::tuple<std::string, std::string, std::string>> table{
        {"short header", gpt2({1}).substr(0, 1000), "has 1000 bytes"},
        {"magic only", bytes_of<int32_t>({20240520}), "has 4 bytes"},
        {"version 2", shard(20240520, 2, 0, ""), "version 2"},
        {"llama version 1", shard(20240801, 1, 0, ""), "expected 7"},
        {"one token too few", gpt2({1, 2, 3}).substr(0, 1028), "which is 1030 bytes"},
        {"half a token", gpt2({1, 2, 3}).substr(0, 1029), "has 1029 bytes"},
        {"trailing bytes", gpt2({1, 2, 3}) + "x", "has 1031 bytes"},
        {"negative count", shard(20240520, 1, -1, ""), "-1 tokens"},
        {"largest count", shard(20240801, 7, 2147483647, ""), "which is 8589935612 bytes"},
        {"model", shard(20240326, 3, 0, ""), "llm.c model checkpoint"},
        {"llama model", shard(20240803, 5, 0, ""), "llm.c Llama model checkpoint"},
        {"debug state", shard(20240327, 2, 0, ""), "llm.c debug state"},
        {"tokenizer", shard(20240328, 2, 0, ""), "llm.c tokenizer"},
        {"optimizer", shard(20240527, 1, 0, ""), "llm.c optimizer state"},
        {"evaluation", shard(20240522, 1, 10, ""), "llm.c evaluation set"},
    };
    for (const auto& [name, bytes, reason] : table) {
        const TempFolder folder;
        testing::write_file(folder / "x.bin", bytes);
        const auto message =
            testing::message_of<InputFileError>([&] { (void)open_tokens(folder / "x.bin"); });
        EXPECT_THAT(message, HasSubstr(folder / "x.bin: ")) << name;
        EXPECT_THAT(message, HasSubstr(reason)) << name;
    }
}

TEST(LlmcShard, RefusesToMixFamiliesAndFormats) {
    const TempFolder folder;
    testing::write_file(folder / "a.bin", gpt2({1}));
    testing::write_file(folder / "b.bin", shard(20240801, 7, 1, bytes_of<uint32_t>({2})));
    const auto open = [&] { (void)open_tokens(folder / "*.bin"); };
    EXPECT_THAT(testing::message_of<InputFileError>(open), HasSubstr("use shards of one family"));
    testing::write_file(folder / "b.bin", "some text");
    EXPECT_THAT(testing::message_of<InputFileError>(open),
                HasSubstr("b.bin: is not an llm.c token shard but plain text"));
}

}  // namespace
}  // namespace vocabpipe
