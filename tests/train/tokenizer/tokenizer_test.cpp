// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "src/train/tokenizer/byte_tokenizer.hpp"
#include "src/train/tokenizer/open_tokenizer.hpp"
#include "src/train/tokenizer/sentencepiece_tokenizer.hpp"
#include "src/train/tokenizer/sentencepiece_training.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

/// A few hundred sentences over a small set of words; no random generator.
std::string corpus() {
    const char* const words[] = {"schedule", "pipeline", "vocabulary", "barrier",
                                 "gradient", "rank",     "forward",    "backward",
                                 "memory",   "logits",   "shard",      "the"};
    std::string text;
    uint32_t state = 1;
    for (int i = 0; i < 400; ++i) {
        for (int word = 0; word < 9; ++word) {
            state = state * 1664525 + 1013904223;
            text += word > 0 ? " " : "";
            text += words[(state >> 16) % 12];
        }
        text += ".\n";
    }
    return text;
}

class SentencePiece : public ::testing::Test {
protected:
    SentencePiece() { testing::write_file(file_, corpus()); }

    [[nodiscard]] std::string train(int64_t vocab_size) const {
        SentencePieceTrainingOptions options;
        options.vocab_size = vocab_size;
        return train_sentencepiece({{file_}}, options).model;
    }

    TempFolder folder_;
    std::string file_ = folder_ / "corpus.txt";
};

std::vector<int32_t> encode(const Tokenizer& tokenizer, std::string_view text) {
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    return ids;
}

TEST(ByteTokenizer, MapsEveryByteToItselfAndBack) {
    std::string text;
    for (int byte = 0; byte < 256; ++byte) {
        text.push_back(static_cast<char>(byte));
    }
    const ByteTokenizer tokenizer;
    auto ids = encode(tokenizer, text);
    for (int32_t i = 0; i < 256; ++i) {
        EXPECT_EQ(ids[static_cast<size_t>(i)], i);
    }
    EXPECT_EQ(tokenizer.vocab_size(), 257);
    EXPECT_EQ(tokenizer.end_of_document(), 256);
    ids.push_back(256);
    ids.push_back(-5);
    ids.push_back(1 << 30);
    EXPECT_EQ(tokenizer.decode(ids), text);
    tokenizer.encode("A", ids);
    EXPECT_EQ(ids.back(), 65);  // appends
    std::vector<size_t> begins{7};
    tokenizer.encode_with_begins("ab", ids, begins);
    EXPECT_EQ(begins, (std::vector<size_t>{7, 0, 1}));
}

TEST_F(SentencePiece, HasExactlyTheVocabularySizeAskedFor) {
    for (const int64_t size : {290, 300, 333, 350}) {
        EXPECT_EQ(SentencePieceTokenizer(train(size), "x").vocab_size(), size);
    }
}

TEST_F(SentencePiece, GivesBackTheTextByteForByte) {
    const SentencePieceTokenizer tokenizer(train(350), "x");
    for (const std::string& text :
         {corpus(), std::string(), std::string(" "), std::string("\n\n  two  spaces \t tab\r\n "),
          std::string("Gr\xc3\xbc\xc3\x9f"
                      "e, \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x8d\x8e"),
          std::string("</s> <unk> <0x41>"), std::string("a\0b", 3)}) {
        const auto ids = encode(tokenizer, text);
        EXPECT_EQ(tokenizer.decode(ids), text);
        for (const int32_t id : ids) {
            ASSERT_GE(id, 0);
            ASSERT_LT(id, tokenizer.vocab_size());
            ASSERT_NE(id, tokenizer.end_of_document());
        }
    }
}

TEST_F(SentencePiece, PiecesOfATextDecodeToItsParts) {
    const SentencePieceTokenizer tokenizer(train(350), "x");
    auto ids = encode(tokenizer, "the rank");
    tokenizer.encode(" and the shard", ids);
    EXPECT_EQ(tokenizer.decode(ids), "the rank and the shard");
}

TEST_F(SentencePiece, SaysWhereEachPieceBegins) {
    const SentencePieceTokenizer tokenizer(train(350), "x");
    for (const std::string& text :
         {std::string("the rank and the shard"), std::string("\n two  spaces \xe4\xbd\xa0 \xff."),
          std::string()}) {
        std::vector<int32_t> ids;
        std::vector<size_t> begins;
        tokenizer.encode_with_begins(text, ids, begins);
        EXPECT_EQ(ids, encode(tokenizer, text));
        ASSERT_EQ(begins.size(), ids.size());
        EXPECT_TRUE(std::ranges::is_sorted(begins));
        // Ids up to a place where another begins decode to the text up to there.
        for (size_t i = 1; i < ids.size() && text.find('\xff') == std::string::npos; ++i) {
            if (begins[i] == begins[i - 1]) continue;
            EXPECT_EQ(tokenizer.decode({ids.data(), i}), text.substr(0, begins[i])) << i;
        }
    }
}

TEST_F(SentencePiece, TrainsTheSameModelFromTheSameText) {
    EXPECT_EQ(train(340), train(340));
}

TEST_F(SentencePiece, IsSilent) {
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    (void)train(340);
    EXPECT_THROW((void)train(100000), UsageError);
    EXPECT_THROW(SentencePieceTokenizer("no model", "x"), InputFileError);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST_F(SentencePiece, NamesTheLargestSizeTheTextAdmitsWhichThenWorks) {
    const auto message = testing::message_of<UsageError>([&] { (void)train(100000); });
    EXPECT_THAT(message, HasSubstr("--vocab-size 100000: is too large for this text"));
    const std::string mark = "at most ";
    const int64_t largest = std::stoll(message.substr(message.find(mark) + mark.size()));
    EXPECT_EQ(SentencePieceTokenizer(train(largest), "x").vocab_size(), largest);
    EXPECT_THROW((void)train(largest + 1), UsageError);
}

// A size that no text of as many bytes has is refused for a long text before SentencePiece looks
// for the largest one, which takes long.
TEST_F(SentencePiece, RefusesWhatNoLongTextAdmitsAtOnce) {
    constexpr int64_t kBytes = (1 << 20) + 1;
    std::string text;
    while (std::ssize(text) < kBytes) text += "ab ba aab\n";
    text.resize(kBytes);
    testing::write_file(file_, text);
    const auto refusal = [&](int64_t size) {
        return testing::message_of<UsageError>([&] { (void)train(size); });
    };
    EXPECT_EQ(refusal(2 * kBytes + 259),
              "--vocab-size 2097413: is too large for this text, which has 1048577 bytes and so "
              "yields fewer than 2097413 pieces; use a smaller one, or more text");
    const std::string by_training = ": is too large for this text, which yields at most 2";
    EXPECT_THAT(refusal(2 * kBytes + 258), HasSubstr(by_training));
    text.resize(kBytes - 1);
    testing::write_file(file_, text);
    EXPECT_THAT(refusal(2 * kBytes + 259), HasSubstr(by_training)) << "not long";
}

TEST_F(SentencePiece, NamesTheSmallestSizeTheTextAdmitsWhichThenWorks) {
    for (const int64_t size : {1, 2, 100, 256}) {
        const auto message = testing::message_of<UsageError>([&] { (void)train(size); });
        EXPECT_THAT(message, HasSubstr("is too small for this text"));
        const std::string mark = "need --vocab-size ";
        const int64_t smallest = std::stoll(message.substr(message.find(mark) + mark.size()));
        EXPECT_EQ(SentencePieceTokenizer(train(smallest), "x").vocab_size(), smallest);
        EXPECT_THROW((void)train(smallest - 1), UsageError);
    }
    EXPECT_THROW((void)train(0), UsageError);
    EXPECT_THROW((void)train(-1), UsageError);
    EXPECT_THROW((void)train(int64_t{1} << 40), UsageError);
}

TEST_F(SentencePiece, TrainsOnASampleOfALargeInput) {
    SentencePieceTrainingOptions options;
    options.vocab_size = 300;
    options.max_bytes = 10000;
    const std::string model = train_sentencepiece({{file_}}, options).model;
    EXPECT_EQ(SentencePieceTokenizer(model, "x").vocab_size(), 300);
    EXPECT_EQ(model, train_sentencepiece({{file_}}, options).model);
    EXPECT_NE(model, train(300));
}

TEST_F(SentencePiece, TrainsOnOneLongLine) {
    std::string line = corpus();
    std::replace(line.begin(), line.end(), '\n', ' ');
    testing::write_file(file_, line);
    EXPECT_EQ(SentencePieceTokenizer(train(350), "x").vocab_size(), 350);
}

TEST_F(SentencePiece, TrainsOnABoundedPartOfTextWithoutWhiteSpace) {
    std::string unbroken = corpus();
    std::erase_if(unbroken, [](char c) { return c == ' ' || c == '\n'; });
    while (unbroken.size() < 30'000) unbroken += unbroken;
    testing::write_file(file_, corpus() + unbroken + "\n");
    SentencePieceTrainingOptions options;
    options.vocab_size = 350;
    options.max_unbroken_bytes = 10'000;
    const SentencePieceVocabulary bounded = train_sentencepiece({{file_}}, options);
    EXPECT_EQ(SentencePieceTokenizer(bounded.model, "x").vocab_size(), 350);
    EXPECT_GT(bounded.unbroken, 25'000);
    EXPECT_EQ(bounded.unbroken_left_out, bounded.unbroken - 10'000);
    testing::write_file(file_, corpus());
    EXPECT_EQ(train_sentencepiece({{file_}}, options).unbroken, 0);
}

TEST_F(SentencePiece, NeedsReadableText) {
    SentencePieceTrainingOptions options;
    options.vocab_size = 300;
    const auto message = [&](const std::string& file) {
        return testing::message_of<InputFileError>(
            [&] { (void)train_sentencepiece({{file}}, options); });
    };
    EXPECT_THAT(message(folder_ / "none"), HasSubstr("none: cannot read: No such file"));
    testing::write_file(folder_ / "empty", "");
    EXPECT_THAT(message(folder_ / "empty"), HasSubstr("no text"));
    testing::write_file(folder_ / "blank", "\n\n   \n");
    EXPECT_THAT(message(folder_ / "blank"), HasSubstr("no text"));
    testing::write_file(folder_ / "x.gz", "\x1f\x8b\x08 abc");
    EXPECT_THAT(message(folder_ / "x.gz"), HasSubstr("x.gz: the gzip data is damaged"));
    std::filesystem::create_directory(folder_ / "folder");
    EXPECT_THAT(message(folder_ / "folder"), HasSubstr("a folder"));
}

TEST_F(SentencePiece, LoadsItsFileAndRefusesOthers) {
    const std::string model = train(300);
    testing::write_file(folder_ / "x.model", model);
    const auto tokenizer = open_tokenizer(folder_ / "x.model");
    EXPECT_EQ(tokenizer->name(), "sentencepiece");
    EXPECT_EQ(tokenizer->vocab_size(), 300);
    EXPECT_EQ(tokenizer->end_of_document(), 1);
    const auto load = [&] { (void)open_tokenizer(folder_ / "y.model"); };
    EXPECT_THAT(testing::message_of<InputFileError>(load), HasSubstr("y.model: cannot be read"));
    for (const std::string& bytes :
         {std::string(), std::string("text"), std::string("\x1f\x8b\x08"), std::string(100, '\0'),
          model.substr(0, model.size() / 2), model.substr(1)}) {
        testing::write_file(folder_ / "y.model", bytes);
        EXPECT_THAT(testing::message_of<InputFileError>(load),
                    HasSubstr("y.model: is not a SentencePiece model"));
    }
}

}  // namespace
}  // namespace vocabpipe
