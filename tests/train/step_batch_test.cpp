// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/step_batch.hpp"

#include "tests/train/numbered_samples.hpp"
#include "tests/train/random_documents.hpp"
#include "tests/train/sample_tokens.hpp"
#include "vocabpipe/context_cut.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <vector>

namespace vocabpipe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::NumberedSamples;
using testing::RandomDocuments;
using ::testing::StrEq;
using ::testing::ThrowsMessage;

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

/// Column 1 of token t of sample n is 10 n + t; column 0 is left as it is.
class SamplesWithAColumn final : public SampleSource {
public:
    [[nodiscard]] int64_t seq_length() const override { return 2; }
    [[nodiscard]] int64_t samples_per_epoch() const override { return 100; }
    [[nodiscard]] SampleForm form() const override { return {.columns = 2}; }

private:
    void fill(int64_t index, Sample& out) const override {
        for (size_t t = 0; t < 2; ++t) out.columns[2 + t] = static_cast<float>(10 * index + t);
    }
};

TEST(StepBatch, SamplesHaveRoomForTheColumnsOfTheirForm) {
    const SamplesWithAColumn samples;
    StepBatch batch(samples, {.micro_batch_size = 2});
    for (int pass = 0; pass < 2; ++pass) {
        batch.load(3, 1);
        EXPECT_THAT(batch.microbatches()[0].columns, ElementsAre(0, 0, 0, 0, 30, 31, 40, 41));
    }
}

TEST(StepBatch, HasTheLabelsOfLaterTokensAfterThoseOfTheNext) {
    const NumberedSamples samples(kLength);
    StepBatch batch(samples, {.micro_batch_size = 2, .later = {.depths = 5, .weight = 0.25F}});
    batch.load(10, 3);
    for (const Microbatch& m : batch.microbatches()) {
        ASSERT_EQ(m.labels.size(), static_cast<size_t>(6 * m.size()));
        ASSERT_EQ(m.loss_gradient.size(), m.labels.size());
        for (int64_t k = 0; k < 6; ++k) {
            for (int64_t i = 0; i < m.size(); ++i) {
                const auto at = static_cast<size_t>(k * m.size() + i);
                const bool known = i % kLength + k < kLength;
                EXPECT_EQ(m.labels[at], known
                                            ? NumberedSamples::token(10 + 2 * m.index + i / kLength,
                                                                     i % kLength + 1 + k)
                                            : kIgnoredLabel);
                EXPECT_EQ(m.loss_gradient[at],
                          known ? (k == 0 ? 1.0F : 0.25F) * (1.0F / 24) : 0.0F);
            }
        }
    }
    EXPECT_EQ(batch.counted_tokens(), 24) << "later tokens are not counted";
}

TEST(StepBatch, HasNoLabelsOfLaterTokensAcrossTheEndsOfDocuments) {
    const RandomDocuments samples({.seq_length = 16,
                                   .ids = 50,
                                   .masks = {.end_of_document = 50, .separate = true},
                                   .samples = 4});
    StepBatch batch(samples, {.micro_batch_size = 2, .later = {.depths = 2, .weight = 0.5F}});
    batch.load(0, 2);
    int kept = 0, dropped = 0;
    for (const Microbatch& m : batch.microbatches()) {
        for (int64_t k = 1; k <= 2; ++k) {
            for (int64_t i = 0; i < m.size(); ++i) {
                const int64_t token = i % m.seq_length;
                const auto at = static_cast<size_t>(k * m.size() + i);
                const auto from = static_cast<size_t>(i + k);
                const bool in_sequence = token + k < m.seq_length;
                const bool known = in_sequence && m.first_visible[from] <= token;
                dropped += in_sequence && !known ? 1 : 0;
                kept += known ? 1 : 0;
                EXPECT_EQ(m.labels[at], known ? m.labels[from] : kIgnoredLabel);
            }
        }
    }
    EXPECT_GT(kept, 0);
    EXPECT_GT(dropped, 0);
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

TEST(StepBatch, GoesOnWithTheNextSampleAtAnotherNumberOfReplicas) {
    const NumberedSamples samples(kLength);
    std::vector<int64_t> seen;
    int64_t consumed = 0;
    struct Step {
        int replicas, microbatches;
        int64_t rows;
    };
    for (const Step step : {Step{2, 3, 2}, Step{2, 4, 2}, Step{3, 2, 1}, Step{1, 5, 3}}) {
        int64_t batch_size = 0;
        for (int replica = 0; replica < step.replicas; ++replica) {
            StepBatch batch(
                samples,
                {.micro_batch_size = step.rows, .replica = replica, .replicas = step.replicas});
            batch.load(consumed, step.microbatches);
            const std::vector<int64_t> mine = samples_of(batch);
            seen.insert(seen.end(), mine.begin(), mine.end());
            batch_size = batch.global_batch_size();
        }
        consumed += batch_size;
    }
    std::sort(seen.begin(), seen.end());
    std::vector<int64_t> expected(static_cast<size_t>(consumed));
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(seen, expected);
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

TEST(StepBatch, CountsTheLabelsOfAllReplicasThatNoMaskIgnores) {
    constexpr int32_t kEnd = 2;
    const RandomDocuments samples(
        {.seq_length = 9, .ids = 4, .masks = {.end_of_document = kEnd, .ignore_next = true}});
    int64_t expected = 0;
    for (int64_t i = 7; i < 7 + 12; ++i) {
        const std::vector<int32_t> tokens = testing::sample_tokens(samples, i);
        for (size_t t = 0; t < 9; ++t) expected += tokens[t] != kEnd;
    }
    for (const int replicas : {1, 2, 3, 6}) {
        int64_t mine = 0;
        for (int replica = 0; replica < replicas; ++replica) {
            StepBatch batch(samples,
                            {.micro_batch_size = 2, .replica = replica, .replicas = replicas});
            batch.load(7, 6 / replicas);
            EXPECT_EQ(batch.counted_tokens(), expected);
            for (const Microbatch& m : batch.microbatches()) {
                for (size_t i = 0; i < m.tokens.size(); ++i) {
                    const bool ignored = m.tokens[i] == kEnd;
                    EXPECT_EQ(m.labels[i] < 0, ignored);
                    EXPECT_EQ(m.loss_gradient[i],
                              ignored ? 0.0F : 1.0F / static_cast<float>(expected));
                    mine += !ignored;
                }
            }
        }
        EXPECT_EQ(mine, expected) << replicas;
    }
}

TEST(StepBatch, SaysWhereTheDocumentOfEveryTokenBegins) {
    constexpr int32_t kEnd = 1;
    const RandomDocuments samples(
        {.seq_length = 9,
         .ids = 4,
         .masks = {.end_of_document = kEnd, .separate = true, .reset_positions = true}});
    StepBatch batch(samples, {.micro_batch_size = 3});
    batch.load(0, 2);
    EXPECT_EQ(batch.counted_tokens(), 6 * 9);
    for (const Microbatch& m : batch.microbatches()) {
        ASSERT_EQ(m.first_visible.size(), m.tokens.size());
        for (size_t i = 0; i < m.tokens.size(); ++i) {
            size_t begin = i;
            while (begin % 9 > 0 && m.tokens[begin - 1] != kEnd) --begin;
            EXPECT_EQ(m.first_visible[i], static_cast<int32_t>(begin % 9));
            EXPECT_EQ(m.positions[i], static_cast<int32_t>(i - begin));
        }
    }
}

/// Samples of one weight.
class WeighedAlike final : public SampleSource {
public:
    explicit WeighedAlike(float weight) : weight_(weight) {}
    [[nodiscard]] int64_t seq_length() const override { return 3; }
    [[nodiscard]] int64_t samples_per_epoch() const override { return 10; }
    [[nodiscard]] SampleForm form() const override { return {.weighs_labels = true}; }

private:
    void fill(int64_t index, Sample& out) const override {
        std::ranges::fill(out.labels, static_cast<int32_t>(index));
        std::ranges::fill(out.loss_weights, weight_);
    }
    float weight_;
};

TEST(StepBatch, HasNoGradientWhereNoLabelHasAWeight) {
    const WeighedAlike samples(0);
    StepBatch batch(samples, {});
    batch.load(5, 1);
    EXPECT_EQ(batch.counted_tokens(), 0);
    EXPECT_EQ(batch.microbatches()[0].loss_gradient[0], 0.0F);
    EXPECT_EQ(batch.microbatches()[0].labels[0], kIgnoredLabel);
}

TEST(StepBatch, CountsLabelsAlikeWhateverWeightTheyAllHave) {
    for (const float weight : {1.0F, 0.5F, 8.0F}) {
        const WeighedAlike samples(weight);
        StepBatch batch(samples, {.micro_batch_size = 5});
        batch.load(0, 2);
        EXPECT_EQ(batch.counted_tokens(), 30);
        EXPECT_EQ(batch.microbatches()[1].loss_gradient[7], 1.0F / 30) << weight;
    }
}

TEST(StepBatch, DividesWeightsByTheirSumOverTheStepAndNotOverAMicrobatch) {
    const RandomDocuments samples({.seq_length = 9, .ids = 4, .largest_weight = 5});
    constexpr int64_t kFirst = 3, kSamples = 12;
    std::vector<std::vector<float>> weights;
    double sum = 0;
    int64_t counted = 0;
    for (int64_t i = kFirst; i < kFirst + kSamples; ++i) {
        Sample sample(9);
        samples.sample(i, sample);
        weights.push_back(sample.loss_weights);
        for (const float weight : sample.loss_weights) {
            sum += static_cast<double>(weight);
            counted += weight > 0 ? 1 : 0;
        }
    }
    std::vector<std::vector<float>> first(kSamples);  // gradients by sample: the same bits for all
    for (const int64_t sequences : {1, 2, 3}) {
        for (const int replicas : {1, 2}) {
            for (int replica = 0; replica < replicas; ++replica) {
                StepBatch batch(
                    samples,
                    {.micro_batch_size = sequences, .replica = replica, .replicas = replicas});
                const auto microbatches = static_cast<int>(kSamples / sequences / replicas);
                batch.load(kFirst, microbatches);
                EXPECT_EQ(batch.counted_tokens(), counted);
                for (const Microbatch& m : batch.microbatches()) {
                    for (int64_t n = 0; n < m.size(); ++n) {
                        const auto sample =
                            static_cast<size_t>((m.index * replicas + replica) * sequences + n / 9);
                        const auto at = static_cast<size_t>(n);
                        const float weight = weights[sample][static_cast<size_t>(n % 9)];
                        // Two roundings: of the factor, and of the product.
                        EXPECT_NEAR(m.loss_gradient[at], static_cast<double>(weight) / sum,
                                    1.3e-7 * static_cast<double>(weight) / sum);
                        EXPECT_EQ(m.labels[at] < 0, weight == 0);
                        if (first[sample].size() < 9) first[sample].push_back(m.loss_gradient[at]);
                        EXPECT_EQ(m.loss_gradient[at], first[sample][static_cast<size_t>(n % 9)]);
                    }
                }
            }
        }
    }
}

TEST(StepBatch, GivesContextRanksTheirTokensOfEverySequence) {
    const RandomDocuments samples({.seq_length = 24,
                                   .ids = 6,
                                   .masks = {.end_of_document = 2,
                                             .ignore_next = true,
                                             .separate = true,
                                             .reset_positions = true},
                                   .largest_weight = 3});
    StepBatchOptions options{.micro_batch_size = 2, .replica = 1, .replicas = 2};
    StepBatch whole(samples, options);
    whole.load(5, 3);
    for (const int ranks : {2, 3, 4}) {
        options.context = ranks;
        for (int rank = 0; rank < ranks; ++rank) {
            options.context_rank = rank;
            StepBatch part(samples, options);
            part.load(5, 3);
            EXPECT_EQ(part.counted_tokens(), whole.counted_tokens());
            EXPECT_EQ(part.global_batch_size(), whole.global_batch_size());
            const ContextCut cut(samples.seq_length(), rank, ranks);
            for (size_t j = 0; j < 3; ++j) {
                const Microbatch& own = part.microbatches()[j];
                const Microbatch& all = whole.microbatches()[j];
                ASSERT_EQ(own.seq_length, cut.own_length());
                ASSERT_EQ(own.size(), all.size() / ranks);
                for (int64_t n = 0; n < own.size(); ++n) {
                    const auto at = static_cast<size_t>(n / own.seq_length * all.seq_length +
                                                        cut.position(n % own.seq_length));
                    const auto i = static_cast<size_t>(n);
                    ASSERT_EQ(own.tokens[i], all.tokens[at]);
                    ASSERT_EQ(own.labels[i], all.labels[at]);
                    ASSERT_EQ(own.loss_gradient[i], all.loss_gradient[at]);
                    ASSERT_EQ(own.first_visible[i], all.first_visible[at]);
                    ASSERT_EQ(own.positions[i], all.positions[at]);
                }
                ASSERT_TRUE(own.loss_weight);
                const double weight =
                    std::accumulate(all.loss_gradient.begin(), all.loss_gradient.end(), 0.0);
                // Each of its terms is rounded once in fp32.
                EXPECT_NEAR(*own.loss_weight, weight, 6e-8 * weight);
            }
        }
    }
}

// --- samples of several lengths ------------------------------------------------------------------

/// Numbered samples of 4, 2 and 3 tokens in turn.
class NumberedLengths final : public NumberedSamples {
public:
    NumberedLengths() : NumberedSamples(4) {}
    [[nodiscard]] int64_t length(int64_t index) const override {
        return std::array<int64_t, 3>{4, 2, 3}[static_cast<size_t>(index % 3)];
    }

private:
    void fill(int64_t index, Sample& out) const override {
        for (int64_t i = 0; i < length(index); ++i) {
            out.tokens.at(static_cast<size_t>(i)) = token(index, i);
            out.labels.at(static_cast<size_t>(i)) = token(index, i + 1);
        }
    }
};

TEST(StepBatch, MakesAMicrobatchAsLongAsItsLongestSampleOnAnyReplica) {
    const NumberedLengths samples;
    for (int replica = 0; replica < 2; ++replica) {
        StepBatch batch(samples, {.replica = replica, .replicas = 2});
        batch.load(4, 3);  // of 2 3 | 4 2 | 3 4
        EXPECT_THAT(batch.seq_lengths(), ElementsAre(3, 4, 4));
        EXPECT_EQ(batch.tokens(), 2 + 3 + 4 + 2 + 3 + 4);
        EXPECT_EQ(batch.counted_tokens(), batch.tokens());
        EXPECT_EQ(samples_of(batch),
                  replica == 0 ? (std::vector<int64_t>{4, 6, 8}) : (std::vector<int64_t>{5, 7, 9}));
        for (const Microbatch& m : batch.microbatches()) {
            ASSERT_EQ(m.seq_length, batch.seq_lengths()[static_cast<size_t>(m.index)]);
            const int64_t sample = 4 + 2 * m.index + replica;
            for (int64_t i = 0; i < m.size(); ++i) {
                const auto at = static_cast<size_t>(i);
                const bool text = i < samples.length(sample);
                EXPECT_EQ(m.tokens[at], text ? NumberedSamples::token(sample, i) : 0);
                EXPECT_EQ(m.labels[at],
                          text ? NumberedSamples::token(sample, i + 1) : kIgnoredLabel);
                EXPECT_EQ(m.loss_gradient[at], text ? 1.0F / 18 : 0);
            }
        }
    }
}

TEST(StepBatch, PutsSamplesWhereItsArrangementSays) {
    const NumberedLengths samples;
    const auto by_length = [](std::span<const int64_t> lengths, int64_t per_microbatch) {
        EXPECT_EQ(per_microbatch, 4);
        std::vector<int> order(lengths.size());
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, {}, [&](int i) { return lengths[static_cast<size_t>(i)]; });
        return order;
    };
    StepBatch batch(samples,
                    {.micro_batch_size = 2, .replica = 1, .replicas = 2, .arrange = by_length});
    batch.load(0, 3);
    EXPECT_THAT(batch.seq_lengths(), ElementsAre(2, 3, 4));
    EXPECT_EQ(samples_of(batch), (std::vector<int64_t>{7, 10, 8, 11, 6, 9}));
    EXPECT_EQ(batch.counted_tokens(), batch.tokens());
}

TEST(StepBatch, RefusesAnArrangementThatIsNone) {
    const NumberedLengths samples;
    for (const std::vector<int>& order : {std::vector{0, 1, 2}, std::vector{0, 1, 2, 2},
                                          std::vector{0, 1, 2, 4}, std::vector{0, 1, 2, -1}}) {
        StepBatch batch(samples, {.arrange = [&](auto, int64_t) { return order; }});
        EXPECT_THAT([&] { batch.load(0, 4); },
                    ThrowsMessage<UsageError>(HasSubstr("each of the step's 4 samples once")));
    }
    StepBatch batch(samples, {.arrange = [](auto, int64_t) { return std::vector{0, 1, 2, 0}; }});
    EXPECT_THAT([&] { batch.load(0, 4); },
                ThrowsMessage<UsageError>(StrEq(
                    "StepBatchOptions::arrange: must return each of the step's 4 samples once, but "
                    "returned sample 0 at place 3")));
}

TEST(Samples, ArePaddedWithTokensThatSeeOnlyPadding) {
    Sample sample(2);
    sample.tokens = {5, 6};
    sample.labels = {6, 7};
    sample.pad(4);
    EXPECT_THAT(sample.tokens, ElementsAre(5, 6, 0, 0));
    EXPECT_THAT(sample.labels, ElementsAre(6, 7, kIgnoredLabel, kIgnoredLabel));
    EXPECT_THAT(sample.first_visible, ElementsAre(0, 0, 2, 2));
}

TEST(StepBatch, CutsEveryLengthAmongContextRanks) {
    const NumberedLengths samples;
    StepBatch whole(samples, {.micro_batch_size = 3});
    whole.load(0, 2);
    StepBatch part(samples, {.micro_batch_size = 3, .context_rank = 1, .context = 2});
    part.load(0, 2);
    EXPECT_THAT(part.seq_lengths(), ElementsAre(4, 4));
    EXPECT_EQ(part.tokens(), 2 * (4 + 2 + 3));
    const Microbatch& m = part.microbatches()[1];
    EXPECT_EQ(m.seq_length, 2);
    EXPECT_EQ(m.tokens[0], NumberedSamples::token(3, 1));
    EXPECT_EQ(m.tokens[1], NumberedSamples::token(3, 2));
    EXPECT_EQ(m.tokens[3], 0);  // padding of the second sequence, of two tokens
}

}  // namespace
}  // namespace vocabpipe
