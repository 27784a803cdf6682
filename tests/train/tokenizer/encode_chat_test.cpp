// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/encode_chat.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace vocabpipe {
namespace {

using ::testing::ElementsAre;

/// Tokens of two bytes, 7 for "$$", which ends documents, and 1 for any others.
class PairTokenizer final : public Tokenizer {
public:
    [[nodiscard]] std::string name() const override { return "pairs"; }
    [[nodiscard]] int64_t vocab_size() const override { return 8; }
    [[nodiscard]] int32_t end_of_document() const override { return 7; }
    void encode(std::string_view text, std::vector<int32_t>& ids) const override {
        std::vector<size_t> begins;
        encode_with_begins(text, ids, begins);
    }
    void encode_with_begins(std::string_view text, std::vector<int32_t>& ids,
                            std::vector<size_t>& begins) const override {
        for (size_t at = 0; at < text.size(); at += 2) {
            ids.push_back(text.substr(at, 2) == "$$" ? 7 : 1);
            begins.push_back(at);
        }
    }
    [[nodiscard]] std::string decode(std::span<const int32_t>) const override { return {}; }
};

struct Chat {
    std::vector<int32_t> ids{5};
    std::vector<float> weights{1};

    Chat(std::string_view text, std::vector<LearntRange> learn) {
        encode_chat(PairTokenizer(), text, learn, ids, weights);
    }
};

TEST(EncodeChat, AppendsIdsWeightsAndTheEnd) {
    const Chat chat("aabbcc", {{3, 4}});
    EXPECT_THAT(chat.ids, ElementsAre(5, 1, 1, 1, 7));
    EXPECT_THAT(chat.weights, ElementsAre(1, 0, 1, 0, 0));
}

TEST(EncodeChat, EndIsLearntWhereTheTokenBeforeItIs) {
    EXPECT_THAT(Chat("aabb", {{2, 4}}).weights, ElementsAre(1, 0, 1, 1));
    EXPECT_THAT(Chat("", {}).weights, ElementsAre(1, 0)) << "not that of another document";
}

TEST(EncodeChat, TextThatEndsWithTheEndGetsNoSecondOne) {
    const Chat chat("aa$$bb$$", {{2, 4}, {6, 8}});
    EXPECT_THAT(chat.ids, ElementsAre(5, 1, 7, 1, 7));
    EXPECT_THAT(chat.weights, ElementsAre(1, 0, 1, 0, 1));
}

}  // namespace
}  // namespace vocabpipe
