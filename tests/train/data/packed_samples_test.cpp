// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/packed_samples.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "src/train/data/document_starts.hpp"
#include "src/train/data/loss_weights_file.hpp"
#include "src/train/data/megatron_writer.hpp"
#include "src/train/data/training_data.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "tests/train/data/vector_source.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/open_tokens.hpp"

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;

using TokenLists = std::vector<std::vector<int32_t>>;

constexpr int32_t kEndToken = 9;

/// TokenLists of random tokens and lengths, each with kEndToken behind it; tokens are numbered
/// through, so that each is in one document only.
TokenLists random_documents(int count, int longest, uint32_t seed) {
    std::mt19937 random(seed);
    TokenLists documents;
    int32_t token = 10;
    for (int d = 0; d < count; ++d) {
        std::vector<int32_t>& document = documents.emplace_back();
        const auto length = random() % static_cast<uint32_t>(longest + 1);
        for (uint32_t i = 0; i < length; ++i) document.push_back(token++);
        document.push_back(kEndToken);
    }
    return documents;
}

class PackedFiles : public ::testing::Test {
protected:
    std::string prepare(const TokenLists& documents, std::optional<LossWeightType> weights = {}) {
        const std::string prefix = folder_ / "data";
        MegatronWriter writer(prefix, 100'000, weights);
        for (const std::vector<int32_t>& document : documents) {
            std::vector<float> of_tokens;
            for (const int32_t token : document) of_tokens.push_back(static_cast<float>(token % 5));
            weights ? writer.append(document, of_tokens) : writer.append(document);
            writer.end_document();
        }
        writer.finish();
        return prefix;
    }

    testing::TempFolder folder_;
};

/// Checks a sample row by row, and adds what it learns: pairs of a token and its label.
void check_sample(const Sample& sample, std::multimap<int32_t, int32_t>& learnt) {
    for (size_t row = 0; row < sample.tokens.size(); ++row) {
        const auto first = static_cast<size_t>(sample.first_visible[row]);
        ASSERT_LE(first, row);
        ASSERT_EQ(sample.first_visible[first], sample.first_visible[row]);
        if (sample.labels[row] == kIgnoredLabel) {
            // Padding, which comes last and sees itself only.
            ASSERT_EQ(sample.tokens[row], 0);
            ASSERT_TRUE(first == 0 || sample.labels[first - 1] != kIgnoredLabel);
            ASSERT_TRUE(row + 1 == sample.tokens.size() || sample.labels[row + 1] == kIgnoredLabel);
            continue;
        }
        learnt.emplace(sample.tokens[row], sample.labels[row]);
        // The next row goes on with the label, or another document begins there.
        if (row + 1 < sample.tokens.size() &&
            sample.first_visible[row + 1] == sample.first_visible[row]) {
            ASSERT_EQ(sample.tokens[row + 1], sample.labels[row]);
        }
    }
}

TEST_F(PackedFiles, HaveEveryLabelOfEveryDocumentOnceAndNoneBetweenTwo) {
    for (const int64_t length : {1, 2, 5, 16, 64}) {
        for (const int longest : {0, 3, 20, 90}) {
            SCOPED_TRACE(::testing::Message() << length << " of at most " << longest);
            TokenLists documents = random_documents(70, longest, 3);
            documents.push_back({1, 2});  // at least one has a label
            const std::shared_ptr<const TokenSource> source = open_tokens(prepare(documents));
            const PackedSamples samples(source, {.seq_length = length, .seed = 3});
            std::multimap<int32_t, int32_t> expected;
            for (const auto& document : documents) {
                for (size_t i = 0; i + 1 < document.size(); ++i) {
                    expected.emplace(document[i], document[i + 1]);
                }
            }
            std::multimap<int32_t, int32_t> learnt;
            Sample sample(length);
            for (int64_t i = 0; i < samples.samples_per_epoch(); ++i) {
                samples.sample(i, sample);
                ASSERT_NO_FATAL_FAILURE(check_sample(sample, learnt));
            }
            EXPECT_EQ(learnt, expected);
            const PackingTotals& totals = samples.totals();
            EXPECT_EQ(totals.rows, static_cast<int64_t>(expected.size()));
            EXPECT_EQ(totals.documents + totals.single, 71);
            EXPECT_EQ(totals.single, std::ranges::count_if(documents, [](const auto& document) {
                          return document.size() < 2;
                      }));
        }
    }
}

TEST_F(PackedFiles, CutOnlyDocumentsThatAreLongerThanASample) {
    const TokenLists documents{{11, 12, 13, 14, 15, 16, 17, 18, 19, 20, kEndToken},
                               {21, 22, kEndToken}};
    const PackedSamples samples(open_tokens(prepare(documents)),
                                {.seq_length = 4, .shuffle = false});
    ASSERT_EQ(samples.samples_per_epoch(), 3);
    EXPECT_EQ(samples.totals().cut, 1);
    EXPECT_EQ(samples.totals().padding(), 0);
    Sample sample(4);
    samples.sample(0, sample);
    EXPECT_EQ(sample.tokens, (std::vector<int32_t>{11, 12, 13, 14}));
    EXPECT_EQ(sample.labels, (std::vector<int32_t>{12, 13, 14, 15}));
    samples.sample(1, sample);
    EXPECT_EQ(sample.tokens, (std::vector<int32_t>{15, 16, 17, 18}));
    samples.sample(2, sample);
    EXPECT_EQ(sample.tokens, (std::vector<int32_t>{19, 20, 21, 22}));
    EXPECT_EQ(sample.labels, (std::vector<int32_t>{20, kEndToken, 22, kEndToken}));
    EXPECT_EQ(sample.first_visible, (std::vector<int32_t>{0, 0, 2, 2}));
}

TEST_F(PackedFiles, KeepTheWeightsOfTheirLabels) {
    const PackedSamples samples(
        open_tokens(prepare(random_documents(40, 30, 5), LossWeightType::u8)), {.seq_length = 32});
    Sample sample(32);
    for (int64_t i = 0; i < samples.samples_per_epoch(); ++i) {
        samples.sample(i, sample);
        for (size_t row = 0; row < 32; ++row) {
            if (sample.labels[row] < 0) continue;
            EXPECT_EQ(sample.loss_weights[row], static_cast<float>(sample.labels[row] % 5));
        }
    }
}

TEST_F(PackedFiles, AreTheSameFromAListOfDocumentsAndFromTheTokenThatEndsThem) {
    TokenLists documents = random_documents(200, 40, 7);
    const std::shared_ptr<const TokenSource> listed = open_tokens(prepare(documents));
    std::vector<int32_t> stream(static_cast<size_t>(listed->size()));
    listed->read(0, stream);
    const TokenDatasetOptions options{.seq_length = 50, .masks = {.end_of_document = kEndToken}};
    const PackedSamples a(listed, options);
    const PackedSamples b(std::make_shared<testing::VectorSource>(stream), options);
    EXPECT_EQ(a.packing(), b.packing());
    Sample of_a(50), of_b(50);
    for (int64_t i = 0; i < 2 * a.samples_per_epoch(); ++i) {
        a.sample(i, of_a);
        b.sample(i, of_b);
        ASSERT_EQ(of_a.tokens, of_b.tokens);
        ASSERT_EQ(of_a.first_visible, of_b.first_visible);
    }
    // Without an end behind the last document.
    stream.pop_back();
    EXPECT_EQ(document_starts(testing::VectorSource(stream), kEndToken).size(), 201U);
    EXPECT_EQ(document_starts(testing::VectorSource({1, kEndToken}), kEndToken),
              (std::vector<int64_t>{0, 2}));
}

TEST_F(PackedFiles, FollowTheStreamUnshuffledAndVisitEverySampleOnceShuffled) {
    const std::shared_ptr<const TokenSource> source =
        open_tokens(prepare(random_documents(500, 30, 9)));
    const PackedSamples in_order(source, {.seq_length = 64, .shuffle = false});
    const PackedSamples shuffled(source, {.seq_length = 64, .seed = 4});
    std::vector<int32_t> firsts, others;
    Sample sample(64);
    for (int64_t i = 0; i < in_order.samples_per_epoch(); ++i) {
        in_order.sample(i, sample);
        firsts.push_back(sample.tokens[0]);
        shuffled.sample(i, sample);
        others.push_back(sample.tokens[0]);
    }
    EXPECT_TRUE(std::ranges::is_sorted(firsts));
    EXPECT_FALSE(std::ranges::is_sorted(others));
    std::ranges::sort(others);
    EXPECT_EQ(others, firsts);
}

TEST_F(PackedFiles, SayWhatPackingDidAndDifferInItsChecksum) {
    const TokenLists documents{
        {11, 12, 13, kEndToken}, {kEndToken}, {14, kEndToken}, {15, 16, 17, 18, 19, kEndToken}};
    const std::string line =
        PackedSamples(open_tokens(prepare(documents)), {.seq_length = 4}).packing().front();
    EXPECT_THAT(line, HasSubstr("3 documents in 3 sequences of 4 tokens, 25.00 % padding; 1 longer "
                                "document cut; 1 document without a label left out; checksum "));
    // The same tokens in other documents.
    const TokenLists others{
        {11, 12, 13, kEndToken, kEndToken}, {14, kEndToken}, {15, 16, 17, 18, 19, kEndToken}};
    EXPECT_NE(PackedSamples(open_tokens(prepare(others)), {.seq_length = 4}).packing().front(),
              line);
}

TEST_F(PackedFiles, RefuseDocumentsWithoutALabelAndLengthsOutOfRange) {
    const std::shared_ptr<const TokenSource> source =
        open_tokens(prepare({{kEndToken}, {kEndToken}}));
    EXPECT_THAT(message_of<InputFileError>([&] { PackedSamples(source, {.seq_length = 4}); }),
                AllOf(HasSubstr("data: 2 documents, none of at least two tokens"),
                      HasSubstr("--packing-strategy wrapped")));
    EXPECT_THROW(PackedSamples(source, {.seq_length = 0}), UsageError);
    EXPECT_THROW(PackedSamples(source, {.seq_length = int64_t{1} << 31}), UsageError);
}

TEST_F(PackedFiles, AreTheSamplesOfARunThatAsksForThem) {
    const std::string prefix = prepare(random_documents(100, 30, 5));
    const TrainingData data({.path = {prefix}, .split = "80,20", .packing_strategy = "bfd"});
    const auto train = data.samples(DataSplit::train, {.seq_length = 32});
    const auto valid = data.samples(DataSplit::valid, {.seq_length = 32, .shuffle = false});
    EXPECT_TRUE(train->form().resets_positions);
    EXPECT_THAT(train->packing().front(), HasSubstr("% padding"));
    EXPECT_THAT(valid->packing().front(), HasSubstr(" of 32 tokens"));
    const TrainingData cut({.path = {prefix}});
    EXPECT_TRUE(cut.samples(DataSplit::train, {.seq_length = 32})->packing().empty());
    EXPECT_FALSE(cut.samples(DataSplit::train, {.seq_length = 32})->form().separates_documents);
}

TEST_F(PackedFiles, NeedTheTokenThatEndsDocumentsOnlyWhereTheDataListNone) {
    std::string bytes;
    for (const int token : {1, 2, 3, 9, 4, 5, 9})
        bytes += testing::bytes_of<uint16_t>({static_cast<uint16_t>(token)});
    testing::write_file(folder_ / "raw.bin", bytes);
    DataOptions options{
        .path = {folder_ / "raw.bin"}, .format = "raw-u16", .packing_strategy = "bfd"};
    EXPECT_THAT(message_of<UsageError>([&] {
                    (void)TrainingData(options).samples(DataSplit::train, {.seq_length = 4});
                }),
                AllOf(HasSubstr("--packing-strategy bfd: "), HasSubstr("set --eod-token-id")));
    options.eod_token_id = 9;
    EXPECT_EQ(
        TrainingData(options).samples(DataSplit::train, {.seq_length = 5})->samples_per_epoch(), 1);
}

TEST_F(PackedFiles, DoNotGoWithASubsetOfCutSamples) {
    EXPECT_THAT(message_of<UsageError>([] {
                    TrainingData({.path = {"a"}, .subset = "s", .packing_strategy = "bfd"});
                }),
                HasSubstr("cannot be used with --data-subset"));
}

TEST_F(PackedFiles, HaveTheSmallestLengthThatHoldsTheirLargestDocument) {
    const std::shared_ptr<const TokenSource> source =
        open_tokens(prepare(random_documents(200, 90, 3)));
    const std::vector<int64_t> lengths{8, 16, 64};
    for (const bool one_each : {false, true}) {
        const PackedSamples samples(source, {.seq_length = 64, .seed = 3},
                                    {.lengths = lengths, .one_each = one_each});
        std::multimap<int32_t, int32_t> learnt;
        std::map<int64_t, int64_t> counts;
        for (int64_t i = 0; i < samples.samples_per_epoch(); ++i) {
            const int64_t length = samples.length(i);
            ++counts[length];
            Sample sample(length);
            samples.sample(i, sample);
            ASSERT_NO_FATAL_FAILURE(check_sample(sample, learnt));
            std::map<int32_t, int64_t> rows;  // of every document
            for (size_t row = 0; row < sample.labels.size(); ++row) {
                if (sample.labels[row] != kIgnoredLabel) ++rows[sample.first_visible[row]];
            }
            const auto largest = std::ranges::max_element(
                rows, {}, [](const auto& document) { return document.second; });
            ASSERT_EQ(length, *std::ranges::lower_bound(lengths, largest->second));
            if (one_each) {
                ASSERT_EQ(rows.size(), 1U);
            }
        }
        std::vector<LengthCount> expected;
        for (const auto& [length, count] : counts) expected.push_back({length, count});
        EXPECT_EQ(samples.totals().lengths, expected);
        EXPECT_EQ(samples.totals().rows, static_cast<int64_t>(learnt.size()));
        // Small documents fill large sequences.
        EXPECT_LT(samples.totals().padding(), one_each ? 0.5 : 0.1);
        EXPECT_THAT(samples.packing().front(),
                    HasSubstr(" of 64 tokens, " + std::to_string(counts[16]) + " of 16 and " +
                              std::to_string(counts[8]) + " of 8, "));
    }
}

TEST_F(PackedFiles, FollowTheStreamUnshuffledWhateverTheirLengths) {
    const std::shared_ptr<const TokenSource> source =
        open_tokens(prepare(random_documents(60, 60, 3)));
    const PackedSamples samples(source, {.seq_length = 64, .shuffle = false},
                                {.lengths = {16, 64}, .one_each = true});
    int32_t last = -1;
    for (int64_t i = 0; i < samples.samples_per_epoch(); ++i) {
        Sample sample(samples.length(i));
        samples.sample(i, sample);
        if (sample.tokens[0] == kEndToken) continue;
        ASSERT_GT(sample.tokens[0], last);
        last = sample.tokens[0];
    }
}

}  // namespace
}  // namespace vocabpipe
