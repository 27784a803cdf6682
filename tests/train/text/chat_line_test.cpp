// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/chat_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>

#include "src/train/text/json_line.hpp"
#include "tests/train/data/expect_error.hpp"

namespace vocabpipe {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// The chat of nine bytes with this "learn".
ChatLine chat(const std::string& learn) {
    return chat_of_json_line(R"({"id": [[1]], "learn": )" + learn + R"(, "text": "123456789"})",
                             "text");
}
std::string refusal(const std::string& learn) {
    return testing::message_of<BadLine>([&] { (void)chat(learn); });
}

TEST(ChatLine, HasTheRangesOfItsText) {
    const ChatLine read = chat("[[0, 2], [2, 2], [2, 5], [8, 9]]");
    EXPECT_EQ(read.text, "123456789");
    ASSERT_THAT(read.learn, SizeIs(3));
    EXPECT_EQ(read.learn[1].begin, 2U);
    EXPECT_EQ(read.learn[1].end, 5U);
    EXPECT_THAT(chat("[]").learn, IsEmpty());
    // Bytes of UTF-8, not characters or escapes; of a key that comes twice, the last counts.
    const ChatLine twice = chat_of_json_line(
        "{\"learn\": [[0, 1]], \"text\": \"\\u00e9\", \"learn\": [[0, 2]]}", "text");
    ASSERT_THAT(twice.learn, SizeIs(1));
    EXPECT_EQ(twice.learn[0].end, 2U);
}

TEST(ChatLine, RefusesWhatIsNoRangeByItsPlace) {
    EXPECT_THAT(refusal("{\"a\": []}"), HasSubstr("is no list of [begin, end] but object"));
    EXPECT_THAT(refusal("true"), HasSubstr("is no list of [begin, end] but boolean"));
    for (const std::string pair :
         {"7", "\"1\"", "{}", "[1]", "[1, 2, 3]", "[-1, 2]", "[1, 2.5]", "[1, \"2\"]",
          "[0, 18446744073709551616]", "[[], 1]", "[1, {}]", "null"}) {
        EXPECT_THAT(refusal("[[0, 1], " + pair + "]"),
                    HasSubstr("\"learn\"[1] is no [begin, end] of two bytes"))
            << pair;
    }
    for (const char* list : {"[[0, 10]]", "[[3, 2]]", "[[0, 3], [2, 4]]", "[[4, 5], [0, 1]]",
                             "[[0, 18446744073709551615]]"}) {
        EXPECT_THAT(refusal(list), HasSubstr("within the 9 bytes of the text")) << list;
    }
    EXPECT_THROW((void)chat_of_json_line("{\"text\": \"a\"}", "text"), BadLine);
    EXPECT_THROW((void)chat_of_json_line("[{\"learn\": []}]", "text"), BadLine);
}

TEST(ChatLine, IsAnObjectThatHasLearn) {
    EXPECT_TRUE(is_chat_line("{\"text\": \"\", \"learn\": []}"));
    EXPECT_TRUE(is_chat_line("{\"learn\": 7}"));
    for (const char* line : {"", "{}", "{\"a\": {\"learn\": []}}", "[{\"learn\": []}]",
                             "{\"text\": \"\\\"learn\\\": []\"}", "{\"learn\": [", "learn"}) {
        EXPECT_FALSE(is_chat_line(line)) << line;
    }
}

/// What "learn" is, or why it is refused, by the values of the whole line.
std::string expected_learn(const nlohmann::json& line) {
    const auto learn = line.find("learn");
    if (learn == line.end()) {
        return "has no \"learn\", unlike other lines; render all chats with "
               "examples/chats/render_chats.py, or use --input-format jsonl to learn all text";
    }
    if (!learn->is_array()) {
        return std::string("\"learn\" is no list of [begin, end] but ") + learn->type_name();
    }
    const size_t bytes = line.at("text").get_ref<const std::string&>().size();
    std::string ranges;
    uint64_t behind = 0;
    for (size_t i = 0; i < learn->size(); ++i) {
        const nlohmann::json& pair = (*learn)[i];
        const std::string place = "\"learn\"[" + std::to_string(i) + "] is ";
        const bool two = pair.is_array() && pair.size() == 2 && pair[0].is_number_unsigned() &&
                         pair[1].is_number_unsigned();
        if (!two) return place + "no [begin, end] of two bytes of the text";
        const std::string text = "[" + std::to_string(pair[0].get<uint64_t>()) + ", " +
                                 std::to_string(pair[1].get<uint64_t>()) + "]";
        if (pair[0] < behind || pair[1] < pair[0] || pair[1] > bytes) {
            return place + text + ", but must be in order, without overlaps, and within the " +
                   std::to_string(bytes) + " bytes of the text";
        }
        behind = pair[1];
        if (pair[0] < pair[1]) ranges += text;
    }
    return ranges;
}

std::string found_learn(const std::string& line, const nlohmann::json& whole) {
    try {
        const ChatLine chat = chat_of_json_line(line, "text");
        EXPECT_EQ(chat.text, whole.at("text")) << line;
        std::string ranges;
        size_t behind = 0;
        for (const LearntRange& range : chat.learn) {
            EXPECT_LE(behind, range.begin) << line;
            EXPECT_LT(range.begin, range.end) << line;
            behind = range.end;
            ranges += "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + "]";
        }
        EXPECT_LE(behind, chat.text.size()) << line;
        return ranges;
    } catch (const BadLine& error) {
        return error.what();
    }
}

TEST(ChatLine, HasWhatAWholeReadingOfAMutatedLineGives) {
    const std::string good =
        "{\"text\": \"ask\\u00e9 \\\"say\\\"\", \"learn\": [[0, 3], [5, 9], [9, 9]], \"id\": "
        "{\"learn\": [1.5e3, [null], true]}}";
    std::mt19937 random(1);
    int64_t read = 0;
    int64_t refused = 0;
    for (int round = 0; round < 20000; ++round) {
        std::string line = good;
        for (size_t i = 0; i < 1 + random() % 3; ++i) {
            const size_t at = random() % line.size();
            switch (random() % 3) {
                case 0:
                    line[at] = "{}[]\",:0123456789-.e\\\n\xff"[random() % 24];
                    break;
                case 1:
                    line.erase(at, 1 + random() % 8);
                    break;
                default:
                    line.insert(at, line.substr(random() % line.size(), 9));
                    break;
            }
            if (line.empty()) line = "{";
        }
        // A whole reading forgets the first of two equal keys.
        bool twice = false;
        std::set<std::string> keys;
        const nlohmann::json whole = nlohmann::json::parse(
            line,
            [&](int depth, nlohmann::json::parse_event_t event, const nlohmann::json& value) {
                if (event == nlohmann::json::parse_event_t::key && depth == 1) {
                    twice = !keys.insert(value.get<std::string>()).second || twice;
                }
                return true;
            },
            false);
        const bool is_text =
            whole.is_object() && whole.contains("text") && whole["text"].is_string();
        if (!is_text) {
            ASSERT_THROW((void)chat_of_json_line(line, "text"), BadLine) << line;
            ++refused;
        } else {
            const std::string learn = found_learn(line, whole);
            if (!twice) {
                ASSERT_EQ(learn, expected_learn(whole)) << line;
            }
            ++read;
        }
        if (!whole.is_discarded() && !twice) {
            ASSERT_EQ(is_chat_line(line), whole.is_object() && whole.contains("learn")) << line;
        }
    }
    EXPECT_GT(read, 1000);
    EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace vocabpipe
