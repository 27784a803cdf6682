// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/scores_file.hpp"

#include "tests/train/checkpoint/raw_safetensors.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace vocabpipe {
namespace {

using testing::float_bytes;
using ::testing::HasSubstr;
using testing::message_of;
using testing::raw_safetensors;

constexpr int64_t kSamples = 7;
constexpr int64_t kHidden = 3;

ScoresInfo scores_info() {
    return {.corpus = {.data = "one line\nand another", .seq_length = 4, .samples = kSamples},
            .utility_kind = "margin",
            .hidden_size = kHidden,
            .loss = true,
            .provenance = {{"model", "small"}}};
}

int32_t utility_of(int64_t i) {
    return static_cast<int32_t>(1000 + 3 * i);
}

/// Written by `ranks`, each every so-manieth row, the last rows first.
void write_scores(const std::string& path, int ranks) {
    World::threads(ranks, {.timeout_seconds = 30}).run([&](Communicator& world) {
        ScoresWriter writer(world, path, scores_info());
        for (int64_t i = kSamples - 1; i >= 0; --i) {
            if (i % world.size() != world.rank()) continue;
            const int32_t utility = utility_of(i);
            const std::vector<float> row(kHidden, static_cast<float>(i) / 2);
            const auto loss = static_cast<float>(i);
            writer.write_utility(i, {&utility, 1});
            writer.write_embedding(i, row);
            writer.write_loss(i, {&loss, 1});
        }
        writer.publish();
    });
}

TEST(ScoresFile, IsReadAsItWasWrittenByAnyNumberOfRanks) {
    const testing::TempFolder folder;
    write_scores(folder / "one", 1);
    write_scores(folder / "three", 3);
    EXPECT_EQ(testing::read_file(folder / "one"), testing::read_file(folder / "three"));
    EXPECT_EQ(folder.names(), (std::set<std::string>{"one", "three"}));

    const ScoresReader reader(folder / "three");
    EXPECT_EQ(reader.samples(), kSamples);
    EXPECT_EQ(reader.info().corpus, scores_info().corpus);
    EXPECT_EQ(reader.info().utility_kind, "margin");
    EXPECT_EQ(reader.info().hidden_size, kHidden);
    EXPECT_EQ(reader.info().provenance, scores_info().provenance);
    std::vector<int32_t> utility(3);
    std::vector<float> rows(2 * kHidden);
    std::vector<float> loss(1);
    reader.read_utility(4, utility);
    reader.read_embedding(5, rows);
    reader.read_loss(6, loss);
    EXPECT_EQ(utility, (std::vector<int32_t>{utility_of(4), utility_of(5), utility_of(6)}));
    EXPECT_EQ(rows, (std::vector<float>{2.5, 2.5, 2.5, 3, 3, 3}));
    EXPECT_EQ(loss, std::vector<float>{6});
    EXPECT_THAT(message_of<InputFileError>([&] { reader.read_utility(5, utility); }),
                HasSubstr("elements beyond its shape [7]"));
}

TEST(ScoresFile, MayHoldEmbeddingsAlone) {
    const testing::TempFolder folder;
    const std::string path = folder / "scores";
    World::threads(1, {.timeout_seconds = 30}).run([&](Communicator& world) {
        ScoresInfo info = scores_info();
        info.utility_kind.clear();
        info.loss = false;
        ScoresWriter writer(world, path, info);
        writer.write_embedding(0, std::vector<float>(kSamples * kHidden, 0.5F));
        writer.publish();
    });
    const ScoresReader reader(path);
    EXPECT_EQ(reader.info().utility_kind, "");
    EXPECT_FALSE(reader.info().loss);
    std::vector<int32_t> utility(1);
    EXPECT_EQ(message_of<InputFileError>([&] { reader.read_utility(0, utility); }),
              path + ": tensor utility is missing");
}

TEST(ScoresFile, NothingAppearsBeforeItIsComplete) {
    const testing::TempFolder folder;
    World::threads(2, {.timeout_seconds = 30}).run([&](Communicator& world) {
        const ScoresWriter writer(world, folder / "scores", scores_info());
        world.barrier();
    });
    EXPECT_TRUE(folder.names().empty());
}

TEST(ScoresFile, WritesNothingThatItWouldNotRead) {
    const testing::TempFolder folder;
    World::threads(1, {.timeout_seconds = 30}).run([&](Communicator& world) {
        ScoresWriter writer(world, folder / "scores", scores_info());
        const int32_t negative = -1;
        const float infinite = std::numeric_limits<float>::infinity();
        EXPECT_THROW(writer.write_utility(0, {&negative, 1}), std::invalid_argument);
        EXPECT_THROW(writer.write_loss(0, {&infinite, 1}), std::invalid_argument);
    });
}

// The metadata of two samples, by hand.
constexpr const char* kMetadata =
    R"("__metadata__":{"format":"vocabpipe scores 1","utility.kind":"loss",)"
    R"("corpus.data":"","corpus.seq_length":"4","corpus.samples":"2"},)";

std::string utility_file(const std::string& metadata, const std::string& entry,
                         const std::string& data) {
    return raw_safetensors("{" + metadata + entry + "}", data);
}

std::string refusal_of_file(const std::string& bytes) {
    const testing::TempFolder folder;
    testing::write_file(folder / "s", bytes);
    return message_of<InputFileError>([&] {
        const ScoresReader reader(folder / "s");
        std::vector<int32_t> utility(2);
        std::vector<float> loss(2);
        if (!reader.info().utility_kind.empty()) reader.read_utility(0, utility);
        if (reader.info().loss) reader.read_loss(0, loss);
    });
}

TEST(ScoresFile, RefusesWhatItMayNotHold) {
    const std::string entry = R"("utility":{"dtype":"I32","shape":[2],"data_offsets":[0,8]})";
    const std::string good = testing::bytes_of<int32_t>({0, 5});
    EXPECT_THAT(
        refusal_of_file(utility_file(kMetadata, entry, testing::bytes_of<int32_t>({0, -5}))),
        HasSubstr("tensor utility: is -5 for sample 1; it must be at least 0"));
    EXPECT_THAT(
        refusal_of_file(utility_file(
            kMetadata, R"("utility":{"dtype":"U32","shape":[2],"data_offsets":[0,8]})", good)),
        HasSubstr("is U32 [2]; it must be I32 with 1 dimension"));
    EXPECT_THAT(refusal_of_file(utility_file(
                    kMetadata, R"("utility":{"dtype":"I32","shape":[1],"data_offsets":[0,4]})",
                    good.substr(4))),
                HasSubstr("has 1 rows, but corpus.samples is 2"));
    EXPECT_THAT(refusal_of_file(utility_file(kMetadata, entry, good).substr(0, 200)),
                HasSubstr("the file is truncated"));
    EXPECT_THAT(refusal_of_file(utility_file("", entry, good)), HasSubstr("format is missing"));
    EXPECT_THAT(refusal_of_file(raw_safetensors(
                    "{" + std::string(kMetadata) +
                        R"("loss":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                    float_bytes({1, NAN}))),
                HasSubstr("for sample 1; it must be a finite number"));
    EXPECT_THAT(refusal_of_file(raw_safetensors(
                    "{" + std::string(kMetadata) +
                        R"("other":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                    float_bytes({1, 2}))),
                HasSubstr("has neither utility, embedding nor loss"));
}

}  // namespace
}  // namespace vocabpipe
