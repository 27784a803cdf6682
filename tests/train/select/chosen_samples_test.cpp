// SPDX-License-Identifier: Apache-2.0
// --data-subset: the samples of a subset file, per epoch and per data set of a blend.
#include "src/train/select/chosen_samples.hpp"

#include "src/train/data/blend_order.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "tests/train/sample_tokens.hpp"
#include "tests/train/select/subset_of.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kLength = 4;

class ChosenSamplesFiles : public ::testing::Test {
protected:
    /// Token i of file f is 1000 f + i.
    std::string raw(int file, int tokens) {
        std::string bytes;
        for (int i = 0; i < tokens; ++i) {
            bytes += bytes_of<uint16_t>({static_cast<uint16_t>(1000 * file + i)});
        }
        const std::string path = folder_ / ("raw" + std::to_string(file) + ".bin");
        write_file(path, bytes);
        return path;
    }
    /// A subset file of `chosen`, made from the data of these options.
    std::string subset(const DataOptions& options, const std::vector<int64_t>& chosen) {
        const TrainingData data(options);
        const std::string path = folder_ / "subset.safetensors";
        write_subset_file(path, training_corpus(data, kLength), chosen);
        return path;
    }
    static std::unique_ptr<const SampleSource> open(const DataOptions& options,
                                                    const std::string& path, uint64_t seed = 7,
                                                    bool shuffle = true) {
        const TrainingData data(options);
        return data.chosen_samples(
            {.seq_length = kLength, .seed = seed, .shuffle = shuffle},
            std::make_shared<const ChosenSamples>("--data-subset", path, data, kLength));
    }
    static std::vector<int32_t> at(const SampleSource& samples, int64_t index) {
        return sample_tokens(samples, index);
    }
    static std::string refusal(const DataOptions& options, const std::string& path,
                               int64_t length = kLength) {
        return message_of<InputFileError>([&] {
            const TrainingData data(options);
            const ChosenSamples chosen("--data-subset", path, data, length);
        });
    }

    TempFolder folder_;
};

TEST_F(ChosenSamplesFiles, AreVisitedOncePerEpochInAnotherOrderEachTime) {
    const DataOptions options{.path = {raw(0, 401)}, .format = "raw-u16"};
    std::vector<int64_t> chosen;
    for (int64_t i = 1; i < 100; i += 3) chosen.push_back(i);
    const auto samples = open(options, subset(options, chosen));
    ASSERT_EQ(samples->samples_per_epoch(), std::ssize(chosen));
    std::vector<std::vector<int64_t>> epochs(3);
    for (size_t epoch = 0; epoch < epochs.size(); ++epoch) {
        for (int64_t i = 0; i < std::ssize(chosen); ++i) {
            const auto tokens = at(*samples, static_cast<int64_t>(epoch) * std::ssize(chosen) + i);
            const int64_t sample = tokens.front() / kLength;
            for (size_t k = 0; k < tokens.size(); ++k) {
                ASSERT_EQ(tokens[k], sample * kLength + static_cast<int64_t>(k));
            }
            epochs[epoch].push_back(sample);
        }
    }
    EXPECT_NE(epochs[0], epochs[1]);
    EXPECT_NE(epochs[1], epochs[2]);
    EXPECT_NE(epochs[0], chosen);
    for (auto& epoch : epochs) {
        std::ranges::sort(epoch);
        EXPECT_EQ(epoch, chosen);
    }
}

TEST_F(ChosenSamplesFiles, ThatAreAllHaveTheOrderOfARunWithoutASubset) {
    const DataOptions options{.path = {raw(0, 81)}, .format = "raw-u16"};
    std::vector<int64_t> all(20);
    for (int64_t i = 0; i < 20; ++i) all[static_cast<size_t>(i)] = i;
    const auto samples = open(options, subset(options, all));
    const auto plain =
        TrainingData(options).samples(DataSplit::train, {.seq_length = kLength, .seed = 7});
    for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(at(*samples, i), at(*plain, i));
}

TEST_F(ChosenSamplesFiles, OfABlendComeFromTheirOwnSetInItsShare) {
    // Samples 0 to 9 and 10 to 14.
    const DataOptions options{.path = {"3", raw(1, 41), "1", raw(2, 21)}, .format = "raw-u16"};
    const auto samples = open(options, subset(options, {0, 4, 9, 10, 14}));
    EXPECT_EQ(samples->samples_per_epoch(), 5);
    const BlendOrder order({0.75, 0.25});
    std::map<int32_t, int> visits;
    for (int64_t i = 0; i < 240; ++i) {
        const int32_t first = at(*samples, i).front();
        ASSERT_EQ(first / 1000 - 1, static_cast<int32_t>(order(i).dataset));
        ++visits[first];
    }
    // 180 and 60 samples: whole epochs of 3 and 2.
    EXPECT_EQ(visits,
              (std::map<int32_t, int>{{1000, 60}, {1016, 60}, {1036, 60}, {2000, 30}, {2016, 30}}));
}

TEST_F(ChosenSamplesFiles, HaveTheNumbersOfSamplesInOrder) {
    // With --split 80,20: 8 and 4 samples to train on.
    const DataOptions options{
        .path = {"3", raw(1, 42), "1", raw(2, 22)}, .format = "raw-u16", .split = "80,20"};
    const TrainingData data(options);
    const auto all = data.samples_in_order({.seq_length = kLength});
    ASSERT_EQ(all->samples_per_epoch(), training_corpus(data, kLength).samples);
    for (int64_t i = 0; i < all->samples_per_epoch(); ++i) {
        const auto chosen = at(*all, i);
        EXPECT_EQ(chosen.front(), i < 8 ? 1000 + i * kLength : 2000 + (i - 8) * kLength) << i;
        EXPECT_EQ(chosen.back(), chosen.front() + kLength);
        EXPECT_EQ(at(*all, i + all->samples_per_epoch()), chosen);
    }
    const auto some = open(options, subset(options, {0, 7, 8, 11}), 7, false);
    const auto is_visited = [&](int64_t first) {
        for (int64_t i = 0; i < 40; ++i) {
            if (at(*some, i).front() == first) return true;
        }
        return false;
    };
    for (const int64_t number : {0, 7, 8, 11}) EXPECT_TRUE(is_visited(at(*all, number).front()));
}

TEST_F(ChosenSamplesFiles, LeaveNoSetOfABlendEmpty) {
    const DataOptions options{.path = {"3", raw(1, 41), "1", raw(2, 21)}, .format = "raw-u16"};
    const std::string path = subset(options, {0, 4});
    EXPECT_THAT(message_of<UsageError>([&] { (void)open(options, path); }),
                AllOf(HasSubstr("raw2.bin, samples 10 to 14, none is chosen"),
                      HasSubstr("choose more samples")));
}

TEST_F(ChosenSamplesFiles, AreThoseOfTheTrainingPart) {
    const std::string path = raw(0, 401);
    const DataOptions split{.path = {path}, .format = "raw-u16", .split = "80,20,0"};
    EXPECT_EQ(training_corpus(TrainingData(split), kLength).samples, 80);
    const std::string file = subset(split, {3, 79});
    EXPECT_EQ(at(*open(split, file, 7, false), 1).front(), 79 * kLength);
    EXPECT_THAT(refusal({.path = {path}, .format = "raw-u16"}, file),
                HasSubstr("was chosen from 80 samples, but this training data has 100; use the "
                          "data, --split and --seq-length of vocabpipe select score"));
}

TEST_F(ChosenSamplesFiles, OfOtherSharesOrFoldersAreTheSame) {
    const std::string one = raw(1, 41);
    const std::string two = raw(2, 21);
    const std::string file =
        subset({.path = {"3", one, "1", two}, .format = "raw-u16"}, {0, 9, 10});
    const DataOptions other{.format = "raw-u16", .train_path = {"1", one, "5", two}};
    EXPECT_EQ(open(other, file)->samples_per_epoch(), 3);
}

TEST_F(ChosenSamplesFiles, RefuseOtherDataLengthsAndDamage) {
    const DataOptions options{.path = {raw(0, 401)}, .format = "raw-u16"};
    const std::string path = subset(options, {1, 2});
    EXPECT_THAT(refusal({.path = {raw(1, 401)}, .format = "raw-u16"}, path),
                HasSubstr("was chosen from other data: 401 tokens, checksum"));
    EXPECT_THAT(refusal(options, path, 5),
                HasSubstr("from samples of 4 tokens, but --seq-length is 5"));
    EXPECT_THAT(refusal(options, subset(options, {})), HasSubstr("no sample is chosen"));
    const std::string good = read_file(subset(options, {1, 2}));
    write_file(path, good.substr(0, good.size() - 8) + bytes_of<int64_t>({1}));
    EXPECT_THAT(refusal(options, path), HasSubstr("sample 1: is 1 after 1"));
    write_file(path, good.substr(0, good.size() - 1));
    EXPECT_THAT(refusal(options, path), HasSubstr("truncated"));
    EXPECT_THAT(refusal(options, folder_ / "none"), HasSubstr("none: cannot open"));
}

}  // namespace
}  // namespace vocabpipe::testing
