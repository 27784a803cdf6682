// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/training_data.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ranges>
#include <set>
#include <tuple>

#include "src/train/data/blend_order.hpp"
#include "src/train/data/megatron_writer.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "tests/train/sample_tokens.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/open_tokens.hpp"

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::sample_tokens;

constexpr int32_t kEnd = 9999;

/// Files of tokens that are numbered through: the first of file f is 1000 f.
class TrainingDataFiles : public ::testing::Test {
protected:
    /// Documents of the lengths given, each with kEnd behind it if `ends`.
    std::string indexed(int file, const std::vector<int>& lengths, bool ends = true) {
        const std::string prefix = folder_ / ("indexed" + std::to_string(file));
        MegatronWriter writer(prefix, 10000);
        int32_t token = 1000 * file;
        for (const int length : lengths) {
            std::vector<int32_t> document;
            for (int i = 0; i < length; ++i) document.push_back(token++);
            if (ends) document.push_back(kEnd);
            writer.append(document);
            writer.end_document();
        }
        writer.finish();
        return prefix;
    }

    std::string raw(int file, int tokens) {
        std::string bytes;
        for (int i = 0; i < tokens; ++i) {
            bytes += testing::bytes_of<uint16_t>({static_cast<uint16_t>(1000 * file + i)});
        }
        const std::string path = folder_ / ("raw" + std::to_string(file) + ".bin");
        testing::write_file(path, bytes);
        return path;
    }

    testing::TempFolder folder_;
};

/// All tokens of an epoch.
std::set<int32_t> epoch_tokens(const SampleSource& samples) {
    std::set<int32_t> tokens;
    for (int64_t i = 0; i < samples.samples_per_epoch(); ++i) {
        for (const int32_t token : sample_tokens(samples, i)) tokens.insert(token);
    }
    return tokens;
}

TEST_F(TrainingDataFiles, AreOneShuffledDataSetWithoutABlendOrSplit) {
    const std::string path = raw(1, 101);
    const TrainingData data({.path = {path}, .format = "raw-u16"});
    const TokenDatasetOptions options{.seq_length = 4, .seed = 7};
    const auto samples = data.samples(DataSplit::train, options);
    const TokenDataset expected(open_tokens(path, DataFormat::raw_u16), options);
    ASSERT_EQ(samples->samples_per_epoch(), 25);
    for (int64_t i = 0; i < 60; ++i) {
        EXPECT_EQ(sample_tokens(*samples, i), sample_tokens(expected, i));
    }
    EXPECT_FALSE(data.has(DataSplit::valid));
    EXPECT_THAT(
        testing::message_of<UsageError>([&] { (void)data.samples(DataSplit::valid, options); }),
        AllOf(HasSubstr("--valid-data-path"), HasSubstr("--split")));
}

TEST_F(TrainingDataFiles, BlendSetsInMegatronsOrderEachThroughItsOwnEpochs) {
    const TrainingData data({.path = {"3", raw(1, 41), "1", raw(2, 13)}, .format = "raw-u16"});
    const auto samples = data.samples(DataSplit::train, {.seq_length = 4, .seed = 7});
    EXPECT_EQ(samples->samples_per_epoch(), 10 + 3);
    const BlendOrder order({0.75, 0.25});
    std::array<std::vector<int32_t>, 2> firsts;
    for (int64_t i = 0; i < 400; ++i) {
        const std::vector<int32_t> tokens = sample_tokens(*samples, i);
        const size_t set = order(i).dataset;
        ASSERT_EQ(tokens[0] / 1000, static_cast<int32_t>(set) + 1) << i;
        firsts[set].push_back(tokens[0] % 1000);
    }
    // Every epoch of a set has each of its samples once, and epochs differ.
    for (const auto& [set, count] : {std::pair{0U, 10U}, {1U, 3U}}) {
        std::set<std::vector<int32_t>> orders;
        for (size_t begin = 0; begin + count <= firsts[set].size(); begin += count) {
            std::vector<int32_t> epoch(firsts[set].begin() + static_cast<int64_t>(begin),
                                       firsts[set].begin() + static_cast<int64_t>(begin + count));
            orders.insert(epoch);
            std::sort(epoch.begin(), epoch.end());
            for (size_t i = 0; i < count; ++i) ASSERT_EQ(epoch[i], 4 * static_cast<int32_t>(i));
        }
        EXPECT_GT(orders.size(), 3U);
    }
}

TEST_F(TrainingDataFiles, ShuffleASetThatIsNamedTwiceInTwoOrders) {
    const std::string path = raw(1, 401);
    const TrainingData data({.path = {"1", path, "1", path}, .format = "raw-u16"});
    const auto samples = data.samples(DataSplit::train, {.seq_length = 4});
    const BlendOrder order({0.5, 0.5});
    std::array<std::vector<int32_t>, 2> firsts;
    for (int64_t i = 0; i < 40; ++i) {
        firsts[order(i).dataset].push_back(sample_tokens(*samples, i)[0]);
    }
    EXPECT_EQ(firsts[0].size(), 20U);
    EXPECT_NE(firsts[0], firsts[1]);
}

TEST_F(TrainingDataFiles, GoOnAtEveryPositionOfABlend) {
    const DataOptions options{.path = {"0.6", raw(1, 41), "0.4", raw(2, 29)}, .format = "raw-u16"};
    const TokenDatasetOptions four{.seq_length = 4, .seed = 3};
    const auto whole = TrainingData(options).samples(DataSplit::train, four);
    std::vector<std::vector<int32_t>> expected;
    for (int64_t i = 0; i < 60; ++i) expected.push_back(sample_tokens(*whole, i));
    for (size_t begin = 0; begin < expected.size(); ++begin) {
        const auto resumed = TrainingData(options).samples(DataSplit::train, four);
        for (size_t i = begin; i < expected.size(); ++i) {
            ASSERT_EQ(sample_tokens(*resumed, static_cast<int64_t>(i)), expected[i]) << begin;
        }
    }
}

TEST_F(TrainingDataFiles, NumberSamplesInStreamOrderWhateverTheirOwnOrderIs) {
    const std::vector<int> documents{3, 8, 5, 12, 2, 7, 4, 6, 9, 3, 5};
    const std::string one = indexed(1, documents), other = indexed(2, {6, 2, 11, 5});
    const TokenDatasetOptions options{.seq_length = 8, .seed = 7};
    const std::vector<int64_t> one_length, lengths{4, 8};
    for (const auto& [path, strategy, buckets] :
         {std::tuple{std::vector<std::string>{one}, "wrapped", one_length},
          std::tuple{std::vector<std::string>{one}, "padded", one_length},
          std::tuple{std::vector<std::string>{one}, "padded", lengths},
          std::tuple{std::vector<std::string>{"1", one, "3", other}, "wrapped", one_length},
          std::tuple{std::vector<std::string>{"1", one, "3", other}, "padded", lengths}}) {
        SCOPED_TRACE(std::string(strategy) + " " + std::to_string(path.size()));
        const TrainingData data({.path = path, .packing_strategy = strategy});
        const auto samples = data.samples(DataSplit::train, options, buckets);
        const auto in_order = data.samples_in_order(options);
        ASSERT_EQ(in_order->samples_per_epoch(), samples->samples_per_epoch());
        for (int64_t i = 0; i < 3 * samples->samples_per_epoch(); ++i) {
            Sample found(samples->length(i)), expected(options.seq_length);
            samples->sample(i, found);
            in_order->sample(samples->stream_number(i), expected);
            found.pad(options.seq_length);
            EXPECT_EQ(found.tokens, expected.tokens) << i;
            EXPECT_EQ(found.labels, expected.labels) << i;
        }
    }
}

TEST_F(TrainingDataFiles, ShuffleWholePairs) {
    const TrainingData data(
        {.path = {indexed(1, {3, 7, 5, 6, 2, 7, 4, 6})}, .packing_strategy = "padded"});
    const auto pairs = data.pairs({.seq_length = 8, .seed = 7}, {4, 8}, {});
    ASSERT_EQ(pairs->samples_per_epoch(), 8);
    std::set<int64_t> seen;
    std::vector<int64_t> order;
    for (int64_t i = 0; i < 16; i += 2) {
        EXPECT_EQ(pairs->stream_number(i) % 2, 0);
        EXPECT_EQ(pairs->stream_number(i + 1), pairs->stream_number(i) + 1);
        order.push_back(pairs->stream_number(i));
        if (i < 8) seen.insert(order.back());
    }
    EXPECT_THAT(seen, ElementsAre(0, 2, 4, 6));
    EXPECT_FALSE(std::ranges::equal(order | std::views::take(4), order | std::views::drop(4)));
    const int64_t second = 2 * (std::ranges::find(order, 2) - order.begin());
    Sample answer(pairs->length(second + 1));
    pairs->sample(second + 1, answer);
    EXPECT_EQ(answer.tokens.front(), 1015);  // of the fourth document
}

TEST_F(TrainingDataFiles, ShufflePairsSoThatStepsHaveTheLengthsInTheirShares) {
    std::vector<int> documents;
    for (int pair = 0; pair < 144; ++pair) {
        const int longer = pair < 72 ? 2 : 6;
        documents.insert(documents.end(), {longer, longer + 1});
    }
    const TrainingData data({.path = {indexed(1, documents)}, .packing_strategy = "padded"});
    const auto pairs = data.pairs({.seq_length = 8, .seed = 7}, {4, 8}, {});
    std::set<int64_t> seen;
    for (int64_t first = 0; first < 288; first += 16) {
        int longer = 0;
        for (int64_t i = first; i < first + 16; i += 2) {
            longer += pairs->length(i) == 8 ? 1 : 0;
            EXPECT_EQ(pairs->length(i), pairs->length(i + 1));
            seen.insert(pairs->stream_number(i));
        }
        EXPECT_NEAR(longer, 4, 1);
    }
    EXPECT_EQ(seen.size(), 144U);
}

TEST_F(TrainingDataFiles, MixFormatsInABlend) {
    std::string shard(1024, '\0');
    const std::string head = testing::bytes_of<int32_t>({20240520, 1, 9});
    shard.replace(0, head.size(), head);
    for (uint16_t i = 0; i < 9; ++i)
        shard += testing::bytes_of<uint16_t>({static_cast<uint16_t>(2000 + i)});
    testing::write_file(folder_ / "shard.bin", shard);
    const TrainingData data({.path = {"1", indexed(1, {20}), "1", folder_ / "shard.bin"}});
    const auto samples = data.samples(DataSplit::train, {.seq_length = 4});
    EXPECT_EQ(samples->samples_per_epoch(), 5 + 2);
    EXPECT_EQ(sample_tokens(*samples, 0)[0] / 1000, 1);
    EXPECT_EQ(sample_tokens(*samples, 1)[0] / 1000, 2);
}

TEST_F(TrainingDataFiles, AreSplitBetweenDocuments) {
    std::vector<int> lengths;
    for (int d = 0; d < 20; ++d) lengths.push_back(5 + d % 4);
    const std::string path = indexed(1, lengths);
    const TrainingData data({.path = {path}, .split = "14,5,1"});
    const auto whole = open_tokens(path);
    std::set<int32_t> seen;
    std::vector<int64_t> bounds{0, 14, 19, 20};
    for (const DataSplit split : kDataSplits) {
        ASSERT_TRUE(data.has(split));
        const auto samples = data.samples(split, {.seq_length = 1, .shuffle = false});
        // With one token per sample, in order, all of the part is seen.
        std::vector<int32_t> tokens{sample_tokens(*samples, 0)[0]};
        for (int64_t i = 0; i < samples->samples_per_epoch(); ++i) {
            tokens.push_back(sample_tokens(*samples, i)[1]);
        }
        const auto part = static_cast<size_t>(split);
        std::vector<int32_t> expected;
        int64_t at = 0;
        for (int64_t d = 0; d < 20; ++d) {
            const int64_t length = lengths[static_cast<size_t>(d)] + 1;
            std::vector<int32_t> document(static_cast<size_t>(length));
            whole->read(at, document);
            at += length;
            if (d < bounds[part] || d >= bounds[part + 1]) continue;
            expected.insert(expected.end(), document.begin(), document.end());
        }
        EXPECT_EQ(tokens, expected) << to_string(split);
        for (const int32_t token : tokens) {
            if (token == kEnd) continue;
            EXPECT_TRUE(seen.insert(token).second) << token << " is in two parts";
        }
    }
}

TEST_F(TrainingDataFiles, AreSplitBetweenTokensWhereDocumentsAreUnknown) {
    const TrainingData data({.path = {raw(1, 100)}, .format = "raw-u16", .split = "80,20"});
    const auto train = epoch_tokens(*data.samples(DataSplit::train, {.seq_length = 3}));
    const auto valid = epoch_tokens(*data.samples(DataSplit::valid, {.seq_length = 3}));
    EXPECT_FALSE(data.has(DataSplit::test));
    EXPECT_EQ(*train.begin(), 1000);
    EXPECT_EQ(*train.rbegin(), 1079 - (79 % 3));  // what fills no sample is left out
    EXPECT_EQ(*valid.begin(), 1080);
    EXPECT_EQ(*valid.rbegin(), 1099 - (19 % 3));
}

TEST_F(TrainingDataFiles, SplitEverySetOfABlend) {
    const TrainingData data(
        {.path = {"1", raw(1, 100), "1", raw(2, 50)}, .format = "raw-u16", .split = "90,10,0"});
    const auto train = epoch_tokens(*data.samples(DataSplit::train, {.seq_length = 4}));
    const auto valid = epoch_tokens(*data.samples(DataSplit::valid, {.seq_length = 4}));
    EXPECT_TRUE(valid.contains(1090));
    EXPECT_TRUE(valid.contains(2045));
    for (const int32_t token : valid) EXPECT_FALSE(train.contains(token)) << token;
}

TEST_F(TrainingDataFiles, MayHavePathsOfTheirOwnForEveryPart) {
    const TrainingData data({.format = "raw-u16",
                             .train_path = {"1", raw(1, 40), "2", raw(2, 40)},
                             .valid_path = {raw(3, 40)}});
    EXPECT_EQ(data.samples(DataSplit::train, {.seq_length = 3})->samples_per_epoch(), 26);
    const auto valid = data.samples(DataSplit::valid, {.seq_length = 3, .shuffle = false});
    EXPECT_THAT(sample_tokens(*valid, 0), ElementsAre(3000, 3001, 3002, 3003));
    EXPECT_FALSE(data.has(DataSplit::test));
    EXPECT_THAT(data.flags(), ElementsAre(HasSubstr("--train-data-path 0.333"),
                                          HasSubstr("--valid-data-path /")));
}

TEST_F(TrainingDataFiles, HaveOneFingerprintWhereverTheyAreAndOthersAnother) {
    const auto print = [](const std::vector<std::string>& path) {
        return TrainingData({.path = path, .format = "raw-u16"}).fingerprint();
    };
    const std::string file = raw(1, 900);
    const std::string copy = folder_ / "copy";
    testing::write_file(copy, testing::read_file(file));
    EXPECT_EQ(print({"1", file, "3", copy}), print({"1", copy, "3", file}));
    EXPECT_NE(print({"1", file, "3", copy}), print({"3", file, "1", copy}));
    EXPECT_NE(print({file}), print({raw(2, 900)}));
    const std::vector<std::string> longer = print({file});
    EXPECT_NE(longer, print({raw(1, 899)}));
    EXPECT_EQ(print({raw(3, 1)}).size(), 1U);
    EXPECT_EQ(print({raw(4, 0)}).size(), 1U);
}

TEST_F(TrainingDataFiles, SayWhichPartOfWhichFileIsTooSmall) {
    const std::string path = raw(1, 100);
    const TrainingData data({.path = {path}, .format = "raw-u16", .split = "98,2"});
    EXPECT_THAT(testing::message_of<InputFileError>(
                    [&] { (void)data.samples(DataSplit::valid, {.seq_length = 4}); }),
                AllOf(HasSubstr(path), HasSubstr("valid part"), HasSubstr("has 2 tokens")));
}

TEST_F(TrainingDataFiles, RefuseFlagsThatContradictEachOther) {
    const auto refusal = [](const DataOptions& options) {
        return testing::message_of<UsageError>([&] { const TrainingData data(options); });
    };
    EXPECT_THAT(refusal({}), HasSubstr("--data-path: is required"));
    EXPECT_THAT(refusal({.path = {"a"}, .valid_path = {"b"}}), HasSubstr("--valid-data-path"));
    EXPECT_THAT(refusal({.split = "9,1", .train_path = {"a"}}),
                AllOf(HasSubstr("--split 9,1"), HasSubstr("--train-data-path")));
    EXPECT_THAT(refusal({.path = {"a"}, .reset_position_ids = true}),
                AllOf(HasSubstr("--reset-position-ids"), HasSubstr("--reset-attention-mask")));
    EXPECT_THAT(refusal({.path = {"a"}, .eod_token_id = -5}), HasSubstr("--eod-token-id -5"));
    for (const char* split : {"a", "1,2,3,4", "1,,2", "0,0", "-1,2", "1;2", "inf", ","}) {
        EXPECT_THAT(refusal({.path = {"a"}, .split = split}),
                    HasSubstr("--split " + std::string(split) + ": "));
    }
}

TEST_F(TrainingDataFiles, KnowTheTokenThatEndsTheirDocuments) {
    const auto end_of = [](const std::string& path) {
        return TrainingData({.path = {path}, .eod_mask_loss = true}).masks().end_of_document;
    };
    EXPECT_EQ(end_of(indexed(1, {3, 0, 5})), kEnd);
    EXPECT_EQ(end_of(indexed(2, {7})), kEnd);
    const DocumentMasks masks =
        TrainingData(
            {.path = {indexed(1, {3, 5})}, .eod_token_id = 4, .reset_attention_mask = true})
            .masks();
    EXPECT_EQ(masks.end_of_document, 4);
    EXPECT_TRUE(masks.separate);
    EXPECT_FALSE(masks.ignore_next);
}

TEST_F(TrainingDataFiles, AskForTheEndOfDocumentsThatTheyDoNotKnow) {
    const auto refusal = [](DataOptions options) {
        options.reset_attention_mask = true;
        return testing::message_of<UsageError>([&] { (void)TrainingData(options).masks(); });
    };
    const std::string without = indexed(1, {3, 5}, false);
    EXPECT_THAT(refusal({.path = {without}}), AllOf(HasSubstr("--reset-attention-mask: " + without),
                                                    HasSubstr("set --eod-token-id")));
    EXPECT_THAT(refusal({.path = {raw(1, 40)}, .format = "raw-u16"}), HasSubstr("--eod-token-id"));
    std::string shard(1024, '\0');
    const std::string head = testing::bytes_of<int32_t>({20240520, 1, 2});
    shard.replace(0, head.size(), head);
    testing::write_file(folder_ / "shard.bin", shard + "abcd");
    EXPECT_THAT(refusal({.path = {"1", indexed(2, {3}), "1", folder_ / "shard.bin"}}),
                AllOf(HasSubstr("9999"), HasSubstr("50256")));
}

TEST(SplitProportions, RoundAsPythonDoes) {
    const SplitProportions megatron("969, 30, 1");
    EXPECT_EQ(megatron.range(DataSplit::train, 1000).end, 969);
    EXPECT_EQ(megatron.range(DataSplit::valid, 1000).begin, 969);
    EXPECT_EQ(megatron.range(DataSplit::valid, 1000).end, 999);
    EXPECT_EQ(megatron.range(DataSplit::test, 1000).end, 1000);
    // round(0.5) is 0 and round(1.5) is 2: to the even neighbour.
    const SplitProportions halves("1,1");
    EXPECT_EQ(halves.range(DataSplit::train, 1).end, 0);
    EXPECT_EQ(halves.range(DataSplit::train, 3).end, 2);
    EXPECT_EQ(halves.range(DataSplit::train, 5).end, 2);
}

TEST(SplitProportions, MayKeepTheQuotesOfAScript) {
    for (const char* const text : {"'99,1,0'", "\"99,1,0\"", "99,1,0"}) {
        const SplitProportions split(text);
        EXPECT_EQ(split.range(DataSplit::train, 100).end, 99) << text;
        EXPECT_EQ(split.range(DataSplit::valid, 100).end, 100) << text;
    }
    for (const char* const text : {"'99,1,0", "'", "''", "99,'1',0"}) {
        EXPECT_THROW(SplitProportions{text}, UsageError) << text;
    }
}

TEST(SplitProportions, LeaveNothingOutAndNothingTwice) {
    for (const char* text : {"969,30,1", "1,1,1", "0.1,0.2,0.7", "1", "0,1,0", "1e-9,1,3"}) {
        const SplitProportions proportions(text);
        for (const int64_t count : {0L, 1L, 2L, 3L, 7L, 10L, 999L, 1000000007L, 1L << 45}) {
            int64_t next = 0;
            for (const DataSplit split : kDataSplits) {
                const auto part = proportions.range(split, count);
                EXPECT_EQ(part.begin, next);
                EXPECT_GE(part.end, part.begin);
                EXPECT_LE(std::abs(static_cast<double>(part.end - part.begin) -
                                   proportions[split] * static_cast<double>(count)),
                          1.0);
                next = part.end;
            }
            EXPECT_EQ(next, count) << text;
        }
    }
}

}  // namespace
}  // namespace vocabpipe
