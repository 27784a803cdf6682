// SPDX-License-Identifier: Apache-2.0
// vocabpipe data prepare of chats: tokens, and the weights of what is learnt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/tool/run_program.hpp"
#include "tests/train/data/read_all.hpp"
#include "vocabpipe/open_tokens.hpp"

namespace vocabpipe {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::TempFolder;
using Names = std::set<std::string>;

class ChatCommand : public ::testing::Test {
protected:
    [[nodiscard]] Outcome prepare(const std::string& arguments) const {
        return testing::run_in(folder_,
                               "'" VOCABPIPE_PROGRAM "' data prepare --output set " + arguments);
    }
    void write(const std::string& name, const std::string& lines) const {
        testing::write_file(folder_ / name, lines);
    }
    /// Every token as "ID*" if it is learnt, else "ID".
    [[nodiscard]] std::string tokens() const {
        const auto source = open_tokens(folder_ / "set");
        const std::vector<int32_t> ids = testing::read_all(*source);
        const std::vector<float> weights = testing::read_all_weights(*source);
        std::string text;
        for (size_t i = 0; i < ids.size(); ++i) {
            text += std::to_string(ids[i]) + (weights[i] == 1 ? "* " : weights[i] == 0 ? " " : "?");
        }
        return text;
    }

    TempFolder folder_;
};

TEST_F(ChatCommand, WritesWeightsOfWhatIsLearnt) {
    write("c.jsonl",
          "{\"text\": \"ab\\u00e9c\", \"learn\": [[1, 4]]}\n\n"
          "{\"learn\": [[0, 0], [1, 2]], \"text\": \"xy\", \"id\": 7}\n"
          "{\"text\": \"\", \"learn\": []}\n"
          "{\"text\": \"z\", \"learn\": []}\n");
    const Outcome made = prepare("--input c.jsonl");
    ASSERT_EQ(made.exit_code, 0) << made.error;
    EXPECT_THAT(made.output, HasSubstr("set: 3 documents, 11 tokens, "));
    EXPECT_EQ(folder_.names(), (Names{"c.jsonl", "set.bin", "set.idx", "set.weights"}));
    EXPECT_EQ(tokens(), "97 98* 195* 169* 99 256 120 121* 256* 122 256 ");
}

TEST_F(ChatCommand, TokensThatReachIntoARangeAreLearntWhole) {
    // A vocabulary whose pieces are longer than a byte.
    std::string prose;
    for (int i = 0; i < 200; ++i) prose += "question answer question answer\n";
    write("t.txt", prose);
    ASSERT_EQ(testing::run_shell("cd '" + (folder_ / "") +
                                 "' && '" VOCABPIPE_PROGRAM
                                 "' data prepare --output t --input t.txt --vocab-size 280 "
                                 "--tokenizer sentencepiece")
                  .exit_code,
              0);
    // "question" and " answer", of which " answer" begins at byte 8.
    write("a.jsonl", "{\"text\": \"question answer\", \"learn\": [[9, 15]]}\n");
    write("b.jsonl", "{\"text\": \"question answer\", \"learn\": [[8, 9]]}\n");
    write("none.jsonl", "{\"text\": \"question answer\", \"learn\": []}\n");
    std::vector<std::string> made;
    for (const char* name : {"a", "b", "none"}) {
        const Outcome outcome =
            prepare("--tokenizer-model t.model --input " + std::string(name) + ".jsonl");
        ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
        made.push_back(tokens());
    }
    // Both ranges begin in the piece that begins with the space.
    EXPECT_EQ(made[0].find('*'), made[1].find('*'));
    EXPECT_THAT(made[0], ::testing::MatchesRegex("([0-9]+ )+([0-9]+[*] )+"));
    EXPECT_EQ(std::count(made[1].begin(), made[1].end(), '*'), 1);
    EXPECT_THAT(made[2], Not(HasSubstr("*")));
}

TEST_F(ChatCommand, TextAloneIsLearntWholeAndRemovesOldWeights) {
    write("c.jsonl", "{\"text\": \"ab\", \"learn\": [[0, 1]]}\n");
    ASSERT_EQ(prepare("--input c.jsonl").exit_code, 0);
    ASSERT_EQ(prepare("--input c.jsonl --input-format jsonl").exit_code, 0);
    EXPECT_EQ(folder_.names(), (Names{"c.jsonl", "set.bin", "set.idx"}));
    EXPECT_EQ(tokens(), "97* 98* 256* ");
    ASSERT_EQ(prepare("--input c.jsonl").exit_code, 0) << "over tokens without weights";
    EXPECT_EQ(tokens(), "97* 98 256 ");
}

TEST_F(ChatCommand, RefusesWhatIsNoChatAndLeavesNothing) {
    write("c.jsonl", "{\"text\": \"ab\", \"learn\": [[0, 1]]}\n{\"text\": \"ab\"}\n");
    write("range.jsonl", "{\"text\": \"ab\", \"learn\": [[0, 3]]}\n");
    write("kind.jsonl", "{\"text\": \"ab\", \"learn\": true}\n");
    write("key.jsonl", "{\"body\": \"ab\", \"learn\": []}\n");
    write("t.jsonl", "{\"text\": \"ab\"}\n");
    write("good.jsonl", "{\"text\": \"ab\", \"learn\": []}\n");
    const Names before = folder_.names();
    for (const auto& [arguments, code, message] :
         std::vector<std::tuple<std::string, int, std::string>>{
             {"--input c.jsonl", 3,
              "c.jsonl line 2: has no \"learn\", unlike other lines; render all"},
             {"--input range.jsonl", 3,
              "range.jsonl line 1: \"learn\"[0] is [0, 3], but must be in order, without overlaps, "
              "and "
              "within the 2 bytes of the text"},
             {"--input kind.jsonl", 3, "\"learn\" is no list of [begin, end] but boolean"},
             {"--input key.jsonl", 3,
              "key.jsonl line 1: has no \"text\"; strings are under \"body\""},
             {"--input t.jsonl --input-format chats", 3, "t.jsonl line 1: has no \"learn\""},
             {"--input good.jsonl t.jsonl", 2,
              "--input good.jsonl: says what is learnt, but t.jsonl does not; prepare them apart"},
             {"--input t.jsonl good.jsonl", 2, "--input good.jsonl: says what is learnt"},
             {"--input good.jsonl --document-separator line", 2, "each line of good.jsonl"}}) {
        const Outcome outcome = prepare(arguments);
        EXPECT_EQ(outcome.exit_code, code) << arguments;
        EXPECT_THAT(outcome.error, AllOf(HasSubstr("vocabpipe: error: "), HasSubstr(message)));
        EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1);
        EXPECT_EQ(folder_.names(), before) << arguments;
    }
}

TEST_F(ChatCommand, ReplacesNoOtherFile) {
    write("c.jsonl", "{\"text\": \"ab\", \"learn\": [[0, 1]]}\n");
    write("set.weights", "of apples");
    const Outcome outcome = prepare("--input c.jsonl");
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.error,
                HasSubstr("set.weights: already exists and is not a file of loss weights"));
    EXPECT_EQ(testing::read_file(folder_ / "set.weights"), "of apples");
}

TEST_F(ChatCommand, FirstLineMayBeLongerThanABlock) {
    write("c.jsonl", "{\"text\": \"" + std::string(3 << 20, 'x') + "\", \"learn\": [[0, 1]]}\n");
    ASSERT_EQ(prepare("--input c.jsonl").exit_code, 0);
    EXPECT_TRUE(folder_.names().contains("set.weights"));
}

}  // namespace
}  // namespace vocabpipe
