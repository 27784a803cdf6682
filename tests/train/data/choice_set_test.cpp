// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/choice_set.hpp"
#include "tests/train/data/choice_file.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>
#include <functional>
#include <utility>

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ChoiceLimits kLimits{.vocab_size = 100, .seq_length = 6};

/// Two examples of 18 and 14 words.
std::vector<WrittenChoices> two() {
    return {{.label = 2, .context = {1, 2, 3}, .completions = {{4}, {5, 6}, {7, 8, 99}}},
            {.label = 0, .context = {9}, .completions = {{10, 11}, {12}, {13}}}};
}

TEST(ChoiceSet, HasWhatTheFileSays) {
    const TempFolder folder;
    const std::string bytes = choice_file(two());
    EXPECT_EQ(bytes.substr(1024 + 36),
              bytes_of<uint16_t>({65535, 28, 1, 0, 3, 1, 9, 2, 10, 11, 1, 12, 1, 13}));
    EXPECT_EQ(bytes.substr(0, 16), bytes_of<int32_t>({20240522, 1, 2, 36}));
    write_file(folder / "set.bin", bytes);
    const ChoiceSet set(folder / "set.bin", kLimits);
    ASSERT_EQ(set.examples().size(), 2U);
    const ChoiceSet::Example& first = set.examples().front();
    EXPECT_EQ(first.label, 2);
    EXPECT_THAT(first.context, ElementsAre(1, 2, 3));
    ASSERT_EQ(first.completions.size(), 3U);
    EXPECT_THAT(first.completions[2], ElementsAre(7, 8, 99));
    EXPECT_THAT(set.examples().back().completions[0], ElementsAre(10, 11));
}

TEST(ChoiceSet, RefusesWhatIsNoSuchFileOrDamaged) {
    const std::string good = choice_file(two());
    const auto with_word = [&](size_t word, uint16_t value) {
        std::string bytes = good;
        std::memcpy(bytes.data() + 1024 + 2 * word, &value, sizeof value);
        return bytes;
    };
    const auto with_header = [&](size_t entry, int32_t value) {
        std::string bytes = good;
        std::memcpy(bytes.data() + 4 * entry, &value, sizeof value);
        return bytes;
    };
    const std::vector<std::pair<std::string, std::string>> table{
        {"", "is not an llm.c evaluation set but"},
        {with_header(0, 20240520), "is not an llm.c evaluation set but an llm.c GPT-2 shard"},
        {good.substr(0, 1000), "has 1000 bytes"},
        {with_header(1, 2), "version 2"},
        {with_header(2, 0), "declares 0 examples"},
        {with_header(2, -1), "declares -1 examples"},
        {with_header(2, 3), "ends within example 2 of 3"},
        {with_header(2, 1), "28 bytes after its 1 examples"},
        {with_header(3, 28), "the longest example has 36 bytes, but the header says 28"},
        {good.substr(0, good.size() - 2), "ends within example 1 of 2"},
        {good.substr(0, good.size() - 1), "ends within a 16-bit number"},
        {good + good.substr(1024, 2), "2 bytes after its 2 examples"},
        {with_word(0, 1), "example 0 begins with 1, expected 65535"},
        {with_word(1, 31), "example 0 has 31 bytes"},
        {with_word(1, 4), "example 0 has 4 bytes"},
        {with_word(1, 28), "example 0 ends before its tokens"},
        {with_word(1, 38), "example 0 has 1 extra numbers"},
        {with_word(2, 7), "example 0 has index 7"},
        {with_word(3, 3), "example 0 has label 3, but only 3 completions"},
        {with_word(4, 1), "example 0 has 1 completions"},
        {with_word(5, 0), "example 0 has no context"},
        {with_word(9, 0), "example 0 has an empty completion"},
        {with_word(5, 200), "example 0 ends before its tokens"},
        {with_word(6, 100), "example 0 has token 100, but --vocab-size 100"},
        {with_word(10, 65000), "example 0 has token 65000"},
    };
    for (const auto& [bytes, reason] : table) {
        const TempFolder folder;
        write_file(folder / "set.bin", bytes);
        const auto message =
            message_of<InputFileError>([&] { (void)ChoiceSet(folder / "set.bin", kLimits); });
        EXPECT_THAT(message, HasSubstr("--multiple-choice-path " + (folder / "set.bin") + ": "));
        EXPECT_THAT(message, HasSubstr(reason));
    }
}

TEST(ChoiceSet, RefusesWhatTheSequenceHasNoRoomFor) {
    const TempFolder folder;
    write_file(folder / "set.bin", choice_file(two()));
    EXPECT_NO_THROW(ChoiceSet(folder / "set.bin", {.vocab_size = 100, .seq_length = 5}));
    EXPECT_THAT(message_of<InputFileError>([&] {
                    (void)ChoiceSet(folder / "set.bin", {.vocab_size = 100, .seq_length = 4});
                }),
                HasSubstr("example 0 has 6 tokens, but --seq-length 4 has room for only 5"));
}

}  // namespace
}  // namespace vocabpipe::testing
