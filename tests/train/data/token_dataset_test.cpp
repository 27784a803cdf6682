// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/token_dataset.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "src/train/data/read_labelled.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/vector_source.hpp"
#include "tests/train/sample_tokens.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/sample_order.hpp"

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<int64_t> epoch_of(const SampleOrder& order, int64_t samples, int64_t epoch) {
    std::vector<int64_t> result;
    for (int64_t i = 0; i < samples; ++i) {
        result.push_back(order(epoch * samples + i));
    }
    return result;
}

TEST(SampleOrder, VisitsEverySampleOncePerEpochForAnyNumberOfSamples) {
    for (const int64_t samples : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097, 100003}) {
        const SampleOrder order(samples, 1234);
        for (const int64_t epoch : {0, 1, 5}) {
            auto seen = epoch_of(order, samples, epoch);
            std::sort(seen.begin(), seen.end());
            std::vector<int64_t> all(static_cast<size_t>(samples));
            std::iota(all.begin(), all.end(), 0);
            ASSERT_EQ(seen, all) << samples << " samples, epoch " << epoch;
        }
    }
}

TEST(SampleOrder, DependsOnSeedAndEpochAndNothingElse) {
    const int64_t samples = 1000;
    const auto first = epoch_of(SampleOrder(samples, 1), samples, 0);
    EXPECT_EQ(first, epoch_of(SampleOrder(samples, 1), samples, 0));
    EXPECT_NE(first, epoch_of(SampleOrder(samples, 2), samples, 0));
    EXPECT_NE(first, epoch_of(SampleOrder(samples, 1), samples, 1));
}

TEST(SampleOrder, StaysTheSameInFutureVersions) {
    const SampleOrder order(10, 1234);
    EXPECT_EQ(epoch_of(order, 10, 0), (std::vector<int64_t>{5, 3, 2, 6, 0, 9, 7, 4, 1, 8}));
}

TEST(SampleOrder, LooksShuffled) {
    // Neighbours in a random permutation are neighbours in the data twice on average.
    const int64_t samples = 10000;
    const auto order = epoch_of(SampleOrder(samples, 7), samples, 0);
    int neighbours = 0;
    double correlation = 0;
    for (size_t i = 0; i + 1 < order.size(); ++i) {
        neighbours += std::abs(order[i] - order[i + 1]) == 1;
        correlation += (static_cast<double>(i) - 5000.0) * (static_cast<double>(order[i]) - 5000.0);
    }
    EXPECT_LT(neighbours, 12);
    // 4 standard deviations of the correlation coefficient of 10,000 independent pairs.
    EXPECT_LT(std::abs(correlation / (1e12 / 12.0)), 0.04);
}

TEST(SampleOrder, WorksForHugeCountsAndIndices) {
    const int64_t samples = int64_t{1} << 40;
    const SampleOrder order(samples, 1);
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 1000; ++i) {
        const int64_t sample = order(samples * 1000 + i);
        EXPECT_GE(sample, 0);
        EXPECT_LT(sample, samples);
        seen.insert(sample);
    }
    EXPECT_EQ(seen.size(), 1000);
}

TEST(SampleOrder, WithoutShuffleIsTheStream) {
    const SampleOrder order(5, 99, false);
    EXPECT_EQ(epoch_of(order, 5, 3), (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

TEST(TokenDataset, GivesTheSamplesOfABruteForceCut) {
    for (const int64_t tokens : {3, 4, 5, 11, 100, 101, 1000}) {
        for (const int64_t seq_length : {1, 2, 3, 10, 99}) {
            if (tokens <= seq_length) {
                continue;
            }
            std::vector<int32_t> stream(static_cast<size_t>(tokens));
            std::iota(stream.begin(), stream.end(), 1000);
            std::set<std::vector<int32_t>> expected;
            for (int64_t first = 0; first + seq_length < tokens; first += seq_length) {
                expected.insert({stream.begin() + first, stream.begin() + first + seq_length + 1});
            }
            const TokenDataset data(std::make_shared<testing::VectorSource>(stream),
                                    {.seq_length = seq_length, .seed = 5});
            ASSERT_EQ(data.samples_per_epoch(), static_cast<int64_t>(expected.size()));
            for (const int64_t epoch : {0, 2}) {
                std::set<std::vector<int32_t>> seen;
                for (int64_t i = 0; i < data.samples_per_epoch(); ++i) {
                    seen.insert(testing::sample_tokens(data, epoch * data.samples_per_epoch() + i));
                }
                EXPECT_EQ(seen, expected) << tokens << " tokens, length " << seq_length;
            }
        }
    }
}

TEST(TokenDataset, SaysHowManyTokensThereAreAndHowManyAreNeeded) {
    const auto source = std::make_shared<testing::VectorSource>(std::vector<int32_t>(8));
    EXPECT_EQ(TokenDataset(source, {.seq_length = 7}).samples_per_epoch(), 1);
    const auto open = [&] { TokenDataset(source, {.seq_length = 8}); };
    EXPECT_THAT(testing::message_of<InputFileError>(open),
                AllOf(HasSubstr("has 8 tokens"), HasSubstr("needs 9"), HasSubstr("memory")));
    EXPECT_THROW(TokenDataset(source, {.seq_length = 0}), UsageError);
    EXPECT_THROW(TokenDataset(source, {.seq_length = INT64_MAX}), InputFileError);
}

TEST(ReadLabelled, RefusesIdsOutsideOfTheVocabulary) {
    const auto read = [](std::vector<int32_t> ids, int64_t first, int64_t vocab_size) {
        std::vector<int32_t> tokens(2), labels(2);
        std::vector<float> weights{0.5F, 0.25F};
        read_labelled(testing::VectorSource(std::move(ids)), first, vocab_size,
                      {.tokens = tokens, .labels = labels, .loss_weights = weights});
        EXPECT_EQ(weights, (std::vector<float>{0.5F, 0.25F})) << "the source has none";
        tokens.insert(tokens.end(), labels.begin(), labels.end());
        return tokens;
    };
    EXPECT_EQ(read({3, 0, 8, 1}, 0, 9), (std::vector<int32_t>{3, 0, 0, 8}));
    EXPECT_EQ(read({3, 0, 8, 1}, 1, 9), (std::vector<int32_t>{0, 8, 8, 1}));
    EXPECT_EQ(read({-3, 0, 8}, 0, 0), (std::vector<int32_t>{-3, 0, 0, 8})) << "any ids";
    const auto refusal = [&](std::vector<int32_t> ids) {
        return testing::message_of<InputFileError>([&] { (void)read(std::move(ids), 1, 9); });
    };
    const std::string behind =
        ", but --vocab-size 9 allows only 0 to 8; the data needs a larger vocabulary, or the file "
        "was overwritten during the run";
    EXPECT_EQ(refusal({0, 0, 0, 9}), "memory: token 3 is 9" + behind);
    EXPECT_EQ(refusal({0, 0, -1, 9}), "memory: token 2 is -1" + behind);
}

TEST(TokenDataset, RefusesAWrongBufferAndANegativeIndex) {
    const auto source = std::make_shared<testing::VectorSource>(std::vector<int32_t>(8));
    const TokenDataset data(source, {.seq_length = 3});
    Sample three(3), four(4);
    EXPECT_THROW(data.sample(0, four), std::invalid_argument);
    EXPECT_THROW(data.sample(-1, three), std::out_of_range);
}

}  // namespace
}  // namespace vocabpipe
