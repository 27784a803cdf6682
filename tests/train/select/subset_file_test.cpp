// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/subset_file.hpp"

#include "tests/train/checkpoint/raw_safetensors.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace vocabpipe {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

/// Written by `ranks`, each a slice.
void write_subset(const std::string& path, int ranks, const std::vector<int64_t>& samples,
                  int64_t corpus_samples) {
    World::threads(ranks, {.timeout_seconds = 30}).run([&](Communicator& world) {
        SubsetWriter writer(world, path,
                            {.corpus = {.data = "d", .seq_length = 8, .samples = corpus_samples},
                             .count = std::ssize(samples),
                             .provenance = {{"seed", "1"}, {"alpha", "9"}}});
        const int64_t begin = std::ssize(samples) * world.rank() / world.size();
        const int64_t end = std::ssize(samples) * (world.rank() + 1) / world.size();
        writer.write(begin, std::span(samples).subspan(static_cast<size_t>(begin),
                                                       static_cast<size_t>(end - begin)));
        writer.publish();
    });
}

/// CRC-32C bit by bit.
uint32_t plain_crc32c(const std::string& bytes) {
    uint32_t crc = 0xffffffff;
    for (const char byte : bytes) {
        crc ^= static_cast<uint8_t>(byte);
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
    }
    return ~crc;
}

TEST(SubsetFile, IsReadAsItWasWrittenByAnyNumberOfRanks) {
    std::vector<int64_t> samples;  // of several blocks
    for (int64_t i = 0; i < 20001; ++i) samples.push_back(3 * i + i % 2);
    const testing::TempFolder folder;
    write_subset(folder / "one", 1, samples, 100000);
    write_subset(folder / "four", 4, samples, 100000);
    EXPECT_EQ(testing::read_file(folder / "one"), testing::read_file(folder / "four"));

    const SubsetReader reader(folder / "four");
    EXPECT_EQ(reader.count(), 20001);
    EXPECT_EQ(reader.info().corpus, (Corpus{.data = "d", .seq_length = 8, .samples = 100000}));
    EXPECT_EQ(reader.info().provenance,
              (std::map<std::string, std::string>{{"seed", "1"}, {"alpha", "9"}}));
    EXPECT_EQ(reader.all(), samples);
    std::string bytes(samples.size() * 8, '\0');
    std::memcpy(bytes.data(), samples.data(), bytes.size());
    EXPECT_EQ(reader.checksum(), plain_crc32c(bytes));
    for (const int64_t sample : {0, 1, 3, 4, 5, 59999, 60000, 60001, 99999}) {
        EXPECT_EQ(reader.position_of(sample),
                  std::lower_bound(samples.begin(), samples.end(), sample) - samples.begin());
    }
    std::vector<int64_t> two(2);
    reader.read(7, two);
    EXPECT_EQ(two, (std::vector<int64_t>{22, 24}));
    EXPECT_THAT(message_of<InputFileError>([&] { reader.read(20000, two); }),
                HasSubstr("elements beyond its shape"));
}

TEST(SubsetFile, MayBeEmpty) {
    const testing::TempFolder folder;
    write_subset(folder / "none", 3, {}, 5);
    const SubsetReader reader(folder / "none");
    EXPECT_EQ(reader.count(), 0);
    EXPECT_EQ(reader.checksum(), 0U);
    EXPECT_EQ(reader.position_of(0), 0);
}

TEST(SubsetFile, WritesNothingThatItWouldNotRead) {
    const testing::TempFolder folder;
    for (const auto& bad : std::vector<std::vector<int64_t>>{{3, 3}, {4, 2}, {-1, 2}, {0, 10}}) {
        EXPECT_THROW(write_subset(folder / "s", 1, bad, 10), std::invalid_argument);
    }
    EXPECT_TRUE(folder.names().empty());
}

std::string refusal_of_subset(std::initializer_list<int64_t> samples, const std::string& corpus) {
    const testing::TempFolder folder;
    const std::string bytes = testing::bytes_of<int64_t>(samples);
    testing::write_file(folder / "s",
                        testing::raw_safetensors(
                            R"({"__metadata__":{"format":"vocabpipe subset 1","corpus.data":"",)"
                            R"("corpus.seq_length":"4","corpus.samples":")" +
                                corpus + R"("},"sample":{"dtype":"I64","shape":[)" +
                                std::to_string(samples.size()) + R"(],"data_offsets":[0,)" +
                                std::to_string(bytes.size()) + "]}}",
                            bytes));
    return message_of<InputFileError>([&] {
        const SubsetReader reader(folder / "s");
        static_cast<void>(reader.checksum());
    });
}

TEST(SubsetFile, RefusesWhatItMayNotHold) {
    EXPECT_THAT(refusal_of_subset({1, 4, 4}, "9"),
                HasSubstr("sample 2: is 4 after 4; numbers must ascend, and none may come twice"));
    EXPECT_THAT(refusal_of_subset({1, 4, 2}, "9"), HasSubstr("sample 2: is 2 after 4"));
    EXPECT_THAT(refusal_of_subset({-1, 4, 2}, "9"), HasSubstr("sample 0: is -1, but"));
    EXPECT_THAT(refusal_of_subset({1, 4, 9}, "9"),
                HasSubstr("sample 2: is 9, but the corpus has samples 0 to 8"));
    EXPECT_THAT(refusal_of_subset({1, 4, 5}, "2"), HasSubstr("has 3 numbers, but"));
    EXPECT_THAT(refusal_of_subset({1, 4, 5}, "two"), HasSubstr("corpus.samples is \"two\""));
}

TEST(SubsetFile, NoticesDisorderBetweenReads) {
    const testing::TempFolder folder;
    testing::write_file(folder / "s",
                        testing::raw_safetensors(
                            R"({"__metadata__":{"format":"vocabpipe subset 1","corpus.data":"",)"
                            R"("corpus.seq_length":"4","corpus.samples":"9"},)"
                            R"("sample":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}})",
                            testing::bytes_of<int64_t>({5, 4})));
    const SubsetReader reader(folder / "s");
    std::vector<int64_t> one(1);
    reader.read(0, one);
    EXPECT_THAT(message_of<InputFileError>([&] { reader.read(1, one); }),
                HasSubstr("sample 1: is 4 after 5"));
}

}  // namespace
}  // namespace vocabpipe
