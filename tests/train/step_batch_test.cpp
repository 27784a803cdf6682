// SPDX-License-Identifier: Apache-2.0
#include "src/train/step_batch.hpp"

#include "tests/train/numbered_samples.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace vocabpipe {
namespace {

using testing::NumberedSamples;

constexpr int64_t kLength = 4;

/// The samples of a batch in its order.
std::vector<int64_t> samples_of(const StepBatch& batch) {
    std::vector<int64_t> samples;
    for (const Microbatch& m : batch.microbatches()) {
        for (int64_t row = 0; row < m.sequences; ++row) {
            samples.push_back(NumberedSamples::sample_of(m.tokens[row * m.seq_length]));
        }
    }
    return samples;
}

TEST(StepBatch, CutsSamplesIntoInputsAndLabels) {
    const NumberedSamples samples(kLength);
    StepBatch batch(samples, {.micro_batch_size = 2});
    batch.load(10, 3);
    ASSERT_EQ(batch.microbatches().size(), 3U);
    EXPECT_EQ(samples_of(batch), (std::vector<int64_t>{10, 11, 12, 13, 14, 15}));
    for (int j = 0; j < 3; ++j) {
        const Microbatch& m = batch.microbatches()[static_cast<size_t>(j)];
        EXPECT_EQ(m.index, j);
        EXPECT_EQ(m.sequences, 2);
        EXPECT_EQ(m.seq_length, kLength);
        EXPECT_TRUE(m.first_visible.empty());
        ASSERT_EQ(m.tokens.size(), 8U);
        for (int64_t i = 0; i < m.size(); ++i) {
            EXPECT_EQ(m.labels[i],
                      NumberedSamples::token(10 + 2 * j + i / kLength, i % kLength + 1));
            EXPECT_EQ(m.loss_gradient[i], 1.0F / 24);
        }
    }
    EXPECT_EQ(batch.counted_tokens(), 24);
    EXPECT_EQ(batch.global_batch_size(), 6);
}

TEST(StepBatch, DealsMicrobatchesToReplicasInTurn) {
    const NumberedSamples samples(kLength);
    StepBatch second(samples, {.micro_batch_size = 2, .replica = 1, .replicas = 3});
    second.load(100, 2);
    // Microbatches of the step: 100 101 | 102 103 | 104 105 | 106 107 | 108 109 | 110 111.
    EXPECT_EQ(samples_of(second), (std::vector<int64_t>{102, 103, 108, 109}));
    EXPECT_EQ(second.global_batch_size(), 12);
    EXPECT_EQ(second.counted_tokens(), 12 * kLength);
    EXPECT_EQ(second.microbatches()[1].loss_gradient[0], 1.0F / (12 * kLength));
}

TEST(StepBatch, SeesTheSameSamplesInAStepForEveryNumberOfReplicas) {
    const NumberedSamples samples(kLength);
    std::vector<int64_t> expected(24);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = 48 + static_cast<int64_t>(i);
    for (const int replicas : {1, 2, 3, 4, 6, 12}) {
        std::vector<int64_t> seen;
        for (int replica = 0; replica < replicas; ++replica) {
            StepBatch batch(samples,
                            {.micro_batch_size = 2, .replica = replica, .replicas = replicas});
            batch.load(48, 12 / replicas);
            const std::vector<int64_t> mine = samples_of(batch);
            seen.insert(seen.end(), mine.begin(), mine.end());
        }
        std::sort(seen.begin(), seen.end());
        EXPECT_EQ(seen, expected) << replicas << " replicas";
    }
}

TEST(StepBatch, MayGrowAndShrinkFromStepToStep) {
    const NumberedSamples samples(kLength);
    StepBatch batch(samples, {});
    int64_t first = 0;
    for (const int microbatches : {1, 4, 2, 8}) {
        batch.load(first, microbatches);
        std::vector<int64_t> expected;
        for (int j = 0; j < microbatches; ++j) expected.push_back(first + j);
        EXPECT_EQ(samples_of(batch), expected);
        EXPECT_EQ(batch.counted_tokens(), microbatches * kLength);
        first += microbatches;
    }
}

}  // namespace
}  // namespace vocabpipe
