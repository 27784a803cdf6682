// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/support/half.hpp"
#include "src/train/data/llmc_writer.hpp"
#include "src/train/data/loss_weights_file.hpp"
#include "src/train/data/loss_weights_writer.hpp"
#include "src/train/data/megatron_writer.hpp"
#include "src/train/data/token_slice.hpp"
#include "src/train/data/training_data.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/read_all.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/token_dataset.hpp"

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using testing::read_all_weights;
using testing::write_file;

TEST(Half, HasTheValuesOfItsDefinitionAndComesBackFromThem) {
    for (uint32_t i = 0; i < 0x10000; ++i) {
        const auto bits = static_cast<uint16_t>(i);
        const int exponent = static_cast<int>(bits >> 10 & 31U);
        const int fraction = static_cast<int>(bits & 1023U);
        if (exponent == 31) continue;
        const double size =
            exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
        ASSERT_EQ(double{number_of_half(bits)}, (bits & 0x8000U) != 0 ? -size : size) << bits;
        ASSERT_EQ(half_of_number(number_of_half(bits)), bits);
    }
    EXPECT_TRUE(std::isinf(number_of_half(0x7c00)));
    EXPECT_TRUE(std::isnan(number_of_half(0x7e00)));
    EXPECT_TRUE(std::isnan(number_of_half(half_of_number(NAN))));
    EXPECT_EQ(half_of_number(65520), 0x7c00);
}

TEST(Half, IsTheNearestAndOfTwoTheEvenOne) {
    for (uint16_t bits = 0; bits < 0x7bff; ++bits) {
        const double low = double{number_of_half(bits)};
        const double high = double{number_of_half(static_cast<uint16_t>(bits + 1))};
        const auto middle = static_cast<float>((low + high) / 2);  // exact
        ASSERT_EQ(half_of_number(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
        ASSERT_EQ(half_of_number(std::nextafter(middle, 0.0F)), bits) << bits;
        ASSERT_EQ(half_of_number(std::nextafter(middle, 1e9F)), bits + 1) << bits;
    }
}

class LossWeights : public ::testing::Test {
protected:
    /// Tokens 0, 1, 2, ... in documents of the given lengths, with a weight for each.
    std::string prepare(const std::vector<int>& lengths, LossWeightType type,
                        const std::vector<float>& weights) {
        const std::string prefix = folder_ / "data";
        MegatronWriter writer(prefix, 1000, type);
        int32_t token = 0;
        for (const int length : lengths) {
            for (int i = 0; i < length; ++i, ++token) {
                writer.append({&token, 1}, {&weights[static_cast<size_t>(token)], 1});
            }
            writer.end_document();
        }
        writer.finish();
        return prefix;
    }

    testing::TempFolder folder_;
};

TEST_F(LossWeights, ComeBackAsTheyWereWritten) {
    const std::vector<float> masks{0, 1, 1, 0, 255, 7};
    const auto u8 = open_tokens(prepare({2, 4}, LossWeightType::u8, masks));
    EXPECT_EQ(read_all_weights(*u8), masks);
    EXPECT_EQ(testing::read_all(*u8), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
    EXPECT_EQ(u8->info().loss_weights, folder_ / "data.weights");
    EXPECT_EQ(u8->info().documents, 2);
    EXPECT_EQ(u8->document_start(1), 2);
    const std::vector<float> halves{0.5F, 65504, 0, 0x1p-24F, 1.25F, 3};
    const auto fp16 = open_tokens(prepare({6}, LossWeightType::fp16, halves));
    EXPECT_EQ(read_all_weights(*fp16), halves);
    const LossWeightsFile file(fp16->info().loss_weights);
    EXPECT_EQ(file.type(), LossWeightType::fp16);
    EXPECT_EQ(file.check().positive, 5);
    EXPECT_EQ(file.check().sum, 0.5 + 65504 + 0x1p-24 + 1.25 + 3);
}

TEST_F(LossWeights, AreReadAcrossBlocksAndFromAnyTokenOn) {
    std::vector<float> weights;
    for (int i = 0; i < 20'000; ++i) weights.push_back(static_cast<float>(i % 200));
    MegatronWriter writer(folder_ / "long", 1000, LossWeightType::u8);
    writer.append(std::vector<int32_t>(weights.size(), 5), weights);
    writer.finish();
    const std::shared_ptr<const TokenSource> source = open_tokens(folder_ / "long");
    EXPECT_EQ(read_all_weights(*source), weights);
    const TokenSlice slice(source, 8190, 8196, "train");
    EXPECT_EQ(read_all_weights(slice), (std::vector<float>{190, 191, 192, 193, 194, 195}));
    std::vector<float> two(2);
    EXPECT_THROW(slice.read_loss_weights(5, two), std::out_of_range);
    EXPECT_THROW(source->read_loss_weights(19'999, two), std::out_of_range);
}

TEST_F(LossWeights, AreOneForTokensWithoutThem) {
    MegatronWriter writer(folder_ / "data", 1000);
    writer.append(std::vector<int32_t>{1, 2, 3});
    writer.finish();
    const auto plain = open_tokens(folder_ / "data");
    EXPECT_EQ(read_all_weights(*plain), (std::vector<float>{1, 1, 1}));
    EXPECT_TRUE(plain->info().loss_weights.empty());
    MegatronWriter both(folder_ / "data", 1000, LossWeightType::u8);
    both.append(std::vector<int32_t>{1, 2});
    both.append(std::vector<int32_t>{3}, std::vector<float>{0});
    both.finish();
    EXPECT_EQ(read_all_weights(*open_tokens(folder_ / "data")), (std::vector<float>{1, 1, 0}));
}

TEST_F(LossWeights, StandBesideRawTokensToo) {
    write_file(folder_ / "raw.bin", std::string("\1\0\2\0", 4));
    LossWeightsWriter writer(folder_ / "raw.bin.weights", LossWeightType::fp16);
    writer.append(std::vector<float>{0.25F, 4});
    writer.finish();
    writer.publish();
    EXPECT_EQ(read_all_weights(*open_tokens(folder_ / "raw.bin", DataFormat::raw_u16)),
              (std::vector<float>{0.25F, 4}));
}

TEST_F(LossWeights, OfOlderTokensDoNotStayBesideNewOnes) {
    const std::string prefix = prepare({3}, LossWeightType::u8, {0, 1, 1});
    MegatronWriter again(prefix, 1000);
    again.append(std::vector<int32_t>{7, 8, 9});
    again.finish();
    EXPECT_EQ(folder_.names(), (std::set<std::string>{"data.bin", "data.idx"}));
    LossWeightsWriter of_shard(folder_ / "shard.bin.weights", LossWeightType::u8);
    of_shard.finish();
    of_shard.publish();
    LlmcWriter shard(folder_ / "shard.bin", 1000, 0);
    shard.finish();
    EXPECT_EQ(folder_.names(), (std::set<std::string>{"data.bin", "data.idx", "shard.bin"}));
    write_file(prefix + ".weights", "a file of something else");
    MegatronWriter third(prefix, 1000);
    third.append(std::vector<int32_t>{7, 8, 9});
    third.finish();
    EXPECT_EQ(testing::read_file(prefix + ".weights"), "a file of something else");
}

TEST_F(LossWeights, AreNotThereUntilAllIsComplete) {
    {
        MegatronWriter writer(folder_ / "data", 1000, LossWeightType::u8);
        writer.append(std::vector<int32_t>{1}, std::vector<float>{1});
    }
    EXPECT_TRUE(folder_.names().empty());
}

TEST_F(LossWeights, ThatATypeDoesNotHoldAreRefused) {
    MegatronWriter u8(folder_ / "a", 1000, LossWeightType::u8);
    MegatronWriter fp16(folder_ / "b", 1000, LossWeightType::fp16);
    const std::vector<int32_t> token{1};
    for (const float weight : {0.5F, -1.0F, 256.0F, NAN, INFINITY}) {
        EXPECT_THROW(u8.append(token, std::vector<float>{weight}), std::invalid_argument);
    }
    for (const float weight : {-0.5F, 65505.0F, NAN, INFINITY}) {
        EXPECT_THROW(fp16.append(token, std::vector<float>{weight}), std::invalid_argument);
    }
    EXPECT_THROW(u8.append(token, std::vector<float>{1, 1}), std::invalid_argument);
    MegatronWriter without(folder_ / "c", 1000);
    EXPECT_THROW(without.append(token, std::vector<float>{1}), std::logic_error);
}

TEST_F(LossWeights, ThatAreDamagedAreRefusedByTheirFile) {
    const std::string prefix = prepare({4}, LossWeightType::fp16, {1, 2, 3, 4});
    const std::string path = prefix + ".weights";
    const std::string whole = testing::read_file(path);
    ASSERT_EQ(whole.size(), 16U + 8U + 16U);
    const auto refusal = [&](const std::string& bytes) {
        write_file(path, bytes);
        return message_of<InputFileError>([&] {
            const auto source = open_tokens(prefix);
            (void)LossWeightsFile(path).check();
        });
    };
    const auto changed = [&](size_t at, char byte) {
        std::string bytes = whole;
        bytes[at] = byte;
        return bytes;
    };
    EXPECT_THAT(refusal(""), AllOf(HasSubstr(path), HasSubstr("no VPWEIGHT magic")));
    EXPECT_THAT(refusal(changed(3, 'x')), HasSubstr("no VPWEIGHT magic"));
    EXPECT_THAT(refusal(changed(8, 2)), HasSubstr("version 2"));
    EXPECT_THAT(refusal(changed(12, 7)), HasSubstr("type 7"));
    EXPECT_THAT(refusal(changed(24, 5)), HasSubstr("40 bytes, which is not a whole file"));
    for (size_t size = 8; size < whole.size(); ++size) {
        EXPECT_THAT(refusal(whole.substr(0, size)), HasSubstr("is not a whole file")) << size;
    }
    EXPECT_THAT(refusal(changed(16, 1)), HasSubstr("checksum"));
    EXPECT_THAT(refusal(changed(21, '\xc2')), HasSubstr("loss weight of token 2 is -3"));
    EXPECT_THAT(refusal(changed(21, 0x7e)), HasSubstr("loss weight of token 2 is nan"));
    EXPECT_THAT(refusal(changed(21, 0x7c)), HasSubstr("not negative"));
    const std::string without = whole.substr(0, 32) + std::string(8, '\0');
    write_file(path, without);
    EXPECT_EQ(LossWeightsFile(path).check().sum, 10);  // a checksum of 0 is none
}

TEST_F(LossWeights, OfALargeFileAreCheckedInBlocks) {
    constexpr int64_t kTokens = 200'000, kBlock = 1 << 15;
    MegatronWriter writer(folder_ / "data", 1000, LossWeightType::u8);
    writer.append(std::vector<int32_t>(kTokens, 1), std::vector<float>(kTokens, 1));
    writer.end_document();
    writer.finish();
    const std::string path = folder_ / "data.weights";
    const auto with = [&](size_t token) {
        std::string bytes = testing::read_file(path);
        bytes[16 + token] = 3;
        write_file(path, bytes);
    };
    EXPECT_EQ(LossWeightsFile(path).check(kTokens).sum, kTokens);
    with(100'000);  // between the blocks
    EXPECT_EQ(LossWeightsFile(path).check(2 * kBlock).sum, 2 * kBlock);
    EXPECT_THROW((void)LossWeightsFile(path).check(), InputFileError);
    EXPECT_THROW((void)LossWeightsFile(path).check(kTokens), InputFileError);
    with(kTokens - 1);
    EXPECT_EQ(LossWeightsFile(path).check(2 * kBlock).sum, 2 * kBlock + 2);
    EXPECT_EQ(LossWeightsFile(path).check(kTokens - 1).sum, kTokens - kTokens % kBlock + 2);
}

TEST_F(LossWeights, SurviveEverySingleByteChanged) {
    const std::string prefix = prepare({5}, LossWeightType::fp16, {1, 0, 0.5F, 3, 4});
    const std::string path = prefix + ".weights";
    const std::string whole = testing::read_file(path);
    for (size_t at = 0; at < whole.size(); ++at) {
        for (const int change : {0x01, 0x10, 0x80, 0xff}) {
            std::string bytes = whole;
            bytes[at] = static_cast<char>(bytes[at] ^ change);
            write_file(path, bytes);
            try {
                (void)open_tokens(prefix);
                (void)LossWeightsFile(path).check();
                EXPECT_GE(at, whole.size() - 4) << "byte " << at;  // the reserved ones
            } catch (const InputFileError& error) {
                EXPECT_THAT(error.what(), HasSubstr(path));
            }
        }
    }
}

TEST_F(LossWeights, OfOtherTokensAreRefused) {
    const std::string prefix = prepare({4}, LossWeightType::u8, {1, 0, 1, 1});
    const std::string weights = testing::read_file(prefix + ".weights");
    prepare({5}, LossWeightType::u8, {1, 0, 1, 1, 1});
    write_file(prefix + ".weights", weights);
    EXPECT_THAT(message_of<InputFileError>([&] { (void)open_tokens(prefix); }),
                AllOf(HasSubstr("has 4 loss weights"), HasSubstr("5 tokens")));
}

TEST_F(LossWeights, AreThoseOfLabelsInSamples) {
    const std::shared_ptr<const TokenSource> source =
        open_tokens(prepare({7}, LossWeightType::u8, {9, 1, 0, 3, 4, 5, 6}));
    const TokenDataset samples(source, {.seq_length = 3, .shuffle = false});
    EXPECT_TRUE(samples.form().weighs_labels);
    Sample sample(3);
    samples.sample(0, sample);
    EXPECT_EQ(sample.labels, (std::vector<int32_t>{1, 2, 3}));
    EXPECT_EQ(sample.loss_weights, (std::vector<float>{1, 0, 3}));
    samples.sample(1, sample);
    EXPECT_EQ(sample.loss_weights, (std::vector<float>{4, 5, 6}));
}

TEST_F(LossWeights, AreOneInTheSetsOfABlendThatHaveNone) {
    const std::string weighted = prepare({9}, LossWeightType::u8, std::vector<float>(9, 2));
    MegatronWriter writer(folder_ / "plain", 1000);
    writer.append(std::vector<int32_t>(9, 500));
    writer.finish();
    const TrainingData data({.path = {"1", weighted, "1", folder_ / "plain"}});
    data.check(1000);
    const auto samples = data.samples(DataSplit::train, {.seq_length = 4});
    EXPECT_TRUE(samples->form().weighs_labels);
    Sample sample(4);
    for (int64_t i = 0; i < 8; ++i) {
        samples->sample(i, sample);
        const float expected = sample.tokens[0] == 500 ? 1 : 2;
        EXPECT_EQ(sample.loss_weights, std::vector<float>(4, expected)) << i;
    }
    EXPECT_EQ(data.files().size(), 5U);
}

TEST_F(LossWeights, TellTwoHostsApart) {
    const auto fingerprint = [&](const std::vector<float>& weights) {
        return TrainingData({.path = {prepare({3}, LossWeightType::u8, weights)}}).fingerprint();
    };
    const auto first = fingerprint({1, 0, 1});
    EXPECT_EQ(fingerprint({1, 0, 1}), first);
    EXPECT_NE(fingerprint({1, 1, 0}), first);
}

TEST_F(LossWeights, AreCheckedBeforeARun) {
    const std::string prefix = prepare({4}, LossWeightType::u8, {1, 0, 1, 1});
    std::string bytes = testing::read_file(prefix + ".weights");
    bytes[16] = 3;
    write_file(prefix + ".weights", bytes);
    const TrainingData data({.path = {prefix}});
    EXPECT_THAT(message_of<InputFileError>([&] { data.check(1000); }), HasSubstr("checksum"));
}

}  // namespace
}  // namespace vocabpipe
