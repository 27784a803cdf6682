// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/growing_text.hpp"

#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "src/train/tokenizer/open_tokenizer.hpp"
#include "tests/train/data/temp_folder.hpp"

namespace vocabpipe::testing {
namespace {

std::vector<int32_t> first_ids(int count) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
}

/// Decodes ids as words, with the space of the first one left out, as SentencePiece does.
struct Words {
    std::vector<std::string> pieces;
    size_t* longest = nullptr;  ///< most tokens decoded at a time

    std::string operator()(std::span<const int32_t> ids) const {
        if (longest != nullptr) *longest = std::max(*longest, ids.size());
        std::string text;
        for (const int32_t id : ids) text += pieces[static_cast<size_t>(id)];
        return text.starts_with(' ') ? text.substr(1) : text;
    }
};

TEST(GrowingText, KeepsTheSpacesBetweenTokens) {
    tool::GrowingText text(Words{{" so", " it", "s", " on", "."}});
    EXPECT_EQ(text.next(first_ids(2)), "so it");
    EXPECT_EQ(text.next(first_ids(3)), "s");
    EXPECT_EQ(text.next(first_ids(4)), " on");
    EXPECT_EQ(text.last(first_ids(5)), ".");
}

/// Leaves out all white space at the beginning, as SentencePiece does with
/// remove_extra_whitespaces.
TEST(GrowingText, KeepsARunOfSpaces) {
    const std::vector<std::string> pieces{" a", " ", " ", " ", "b", " ", "\n", "c"};
    tool::GrowingText text([&](std::span<const int32_t> ids) {
        std::string all;
        for (const int32_t id : ids) all += pieces[static_cast<size_t>(id)];
        const size_t begin = all.find_first_not_of(" \n");
        return begin == std::string::npos ? std::string() : all.substr(begin);
    });
    std::string all;
    for (int count = 1; count <= 8; ++count) all += text.next(first_ids(count));
    EXPECT_EQ(all + text.last(first_ids(8)), "a   b \nc");
}

TEST(GrowingText, WaitsForAllBytesOfACharacter) {
    // What two byte tokens make together is no sum of what each makes.
    tool::GrowingText text([](std::span<const int32_t> ids) {
        const std::vector<std::string> by_count{
            "", "so ", "so \uFFFD", "so \uFFFD\uFFFD", "so \u00E9", "so \u00E9\uFFFD"};
        return ids.empty() ? std::string() : by_count[static_cast<size_t>(ids.back()) + 1];
    });
    EXPECT_EQ(text.next(first_ids(1)), "so ");
    EXPECT_EQ(text.next(first_ids(2)), "");
    EXPECT_EQ(text.next(first_ids(3)), "");
    EXPECT_EQ(text.next(first_ids(4)), "\u00E9");
    EXPECT_EQ(text.next(first_ids(5)), "");
    EXPECT_EQ(text.last(first_ids(5)), "\uFFFD");
}

/// All parts, of one token after the other.
std::string grown(const tool::GrowingText::Decode& decode, int count) {
    tool::GrowingText text(decode);
    std::string all;
    for (int i = 0; i < count; ++i) all += text.next(first_ids(i + 1));
    return all + text.last(first_ids(count));
}

TEST(GrowingText, HoldsBackTheBytesOfACharacterAndNoOthers) {
    const std::vector<std::string> pieces{"a",    "\xe4", "\xbd", "\xa0",
                                          "\xff", "\xe4", "b",    "\xf0\x9f"};
    const auto decode = [&](std::span<const int32_t> ids) {
        std::string all;
        for (const int32_t id : ids) all += pieces[static_cast<size_t>(id)];
        return all;
    };
    tool::GrowingText text(decode);
    EXPECT_EQ(text.next(first_ids(1)), "a");
    EXPECT_EQ(text.next(first_ids(3)), "");
    EXPECT_EQ(text.next(first_ids(4)), "\u4F60");
    EXPECT_EQ(text.next(first_ids(5)), "\xff");
    EXPECT_EQ(text.next(first_ids(6)), "");
    EXPECT_EQ(text.next(first_ids(7)),
              "\xe4"
              "b");
    EXPECT_EQ(text.next(first_ids(8)), "");
    EXPECT_EQ(text.last(first_ids(8)), "\xf0\x9f");
    EXPECT_EQ(grown(decode, 8), decode(first_ids(8)));
}

TEST(GrowingText, KeepsARunOfMarksForSpacesAsTheWholeTextDoes) {
    // Only the first space of a text is left out, as with SentencePiece's add_dummy_prefix.
    for (const std::vector<std::string>& pieces :
         {std::vector<std::string>{" ", " ", " ", " ", " ", " ", "b"},
          {" a", " ", " ", " ", " ", " ", " "},
          {" ", "b", " ", "  ", " c"}}) {
        const Words words{pieces};
        const int count = static_cast<int>(pieces.size());
        EXPECT_EQ(grown(words, count), words(first_ids(count)));
    }
}

void expect_grown_as_decoded(const Tokenizer& tokenizer) {
    std::mt19937 random(1);
    const auto decode = [&](std::span<const int32_t> ids) { return tokenizer.decode(ids); };
    const auto most = static_cast<uint32_t>(tokenizer.vocab_size());
    for (int round = 0; round < 200; ++round) {
        // Half of the ids are among the first, where bytes and special tokens are.
        std::vector<int32_t> ids(random() % 30);
        for (int32_t& id : ids)
            id = static_cast<int32_t>(random() % (random() % 2 == 0 ? most : 300));
        tool::GrowingText text(decode);
        std::string all;
        for (size_t count = 1; count <= ids.size(); ++count) all += text.next({ids.data(), count});
        EXPECT_EQ(all + text.last(ids), decode(ids)) << round;
    }
}

TEST(GrowingText, IsWhatTokenizersDecode) {
    for (const char* const form : {"gpt2", "llama2", "gemma", "metaspace", "deepseek_v3"}) {
        expect_grown_as_decoded(*open_tokenizer(TOKENIZER_CASES "/" + std::string(form)));
    }
}

TEST(GrowingText, IsWhatSentencePieceDecodes) {
    const TempFolder folder;
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the  lamb   shall lie down\n      with the wolf. ";
    write_file(folder / "text.txt", text);
    // Spaces at the beginning of a text: all stay, one is left out, all are.
    for (const char* const spaces : {"--add_dummy_prefix=false --remove_extra_whitespaces=false",
                                     "--add_dummy_prefix=true --remove_extra_whitespaces=false",
                                     "--add_dummy_prefix=true --remove_extra_whitespaces=true"}) {
        const auto status = sentencepiece::SentencePieceTrainer::Train(
            "--model_type=bpe --vocab_size=330 --byte_fallback=true --minloglevel=3 "
            "--hard_vocab_limit=false --user_defined_symbols=\u2581\u2581,\u2581\u2581\u2581 " +
            std::string(spaces) + " --input=" + (folder / "text.txt") +
            " --model_prefix=" + (folder / "tokenizer"));
        ASSERT_TRUE(status.ok()) << status.ToString();
        expect_grown_as_decoded(*open_tokenizer(folder / "tokenizer.model"));
    }
}

TEST(GrowingText, DecodesAFewTokensAtATime) {
    size_t longest = 0;
    tool::GrowingText text(Words{std::vector<std::string>(1000, " a"), &longest});
    std::string all = text.next(first_ids(1));
    for (int count = 2; count <= 1000; ++count) all += text.next(first_ids(count));
    EXPECT_EQ(all.size(), 1999U);
    EXPECT_LE(longest, 3U);
}

}  // namespace
}  // namespace vocabpipe::testing
