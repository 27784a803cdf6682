// SPDX-License-Identifier: Apache-2.0
#include "src/support/nearest_name.hpp"

#include "src/support/joined.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr std::array<std::string_view, 5> kNames{"1f1b", "interleaved", "one_barrier",
                                                 "two_barriers", "zb-v"};

TEST(NearestName, IsTheOneWithTheFewestChangedLetters) {
    EXPECT_EQ(did_you_mean("interleaving", kNames), "; did you mean interleaved?");
    EXPECT_EQ(did_you_mean("1fb1", kNames), "; did you mean 1f1b?");
    EXPECT_EQ(did_you_mean("ZB_V", kNames), "; did you mean zb-v?");
    constexpr std::array<std::string_view, 3> kZeroBubble{"zb", "zb-h1", "zb-v"};
    EXPECT_EQ(did_you_mean("zbv", kZeroBubble), "; did you mean zb-v?");
    EXPECT_EQ(did_you_mean("ZBH1", kZeroBubble), "; did you mean zb-h1?");
    EXPECT_EQ(did_you_mean("one-barrier", kNames), "; did you mean one_barrier?");
    EXPECT_EQ(did_you_mean("two", kNames), "; did you mean two_barriers?");
}

TEST(NearestName, IsNoneWhereNothingIsClose) {
    for (const char* name : {"", "gpipe", "dualpipe", "x"})
        EXPECT_EQ(did_you_mean(name, kNames), "");
    EXPECT_EQ(did_you_mean(std::string(100'000, 'z'), kNames), "");
}

// Letters that are swapped are one change, as one that is another.
TEST(NearestName, OfNamesThatAreEquallyCloseIsTheFirst) {
    constexpr std::array<std::string_view, 2> kChangedFirst{"abce", "abdc"};
    EXPECT_EQ(did_you_mean("abcd", kChangedFirst), "; did you mean abce?");
    constexpr std::array<std::string_view, 2> kSwappedFirst{"abdc", "abce"};
    EXPECT_EQ(did_you_mean("abcd", kSwappedFirst), "; did you mean abdc?");
}

TEST(NearestName, FollowsTheListOfAllNames) {
    EXPECT_EQ(
        must_be_one_of(kNames, "1fb1"),
        "must be one of 1f1b, interleaved, one_barrier, two_barriers, zb-v; did you mean 1f1b?");
    EXPECT_EQ(must_be_one_of(std::span(kNames).first(1), "x"), "must be one of 1f1b");
}

TEST(Joined, HasTextsNumbersAndMembersWithTheirSeparatorBetween) {
    EXPECT_EQ(joined(std::vector<std::string>{}), "");
    EXPECT_EQ(joined(std::vector<std::string>{"", "a", ""}), ", a, ");
    EXPECT_EQ(joined(std::array{1, -2, 3}, " "), "1 -2 3");
    EXPECT_EQ(joined(std::vector<bool>{true, false}, ","), "1,0");
    const std::array pairs{std::pair{"a", 1}, std::pair{"b", 2}};
    EXPECT_EQ(joined(pairs, "; ", &std::pair<const char*, int>::second), "1; 2");
    EXPECT_EQ(joined(pairs, "-", [](const auto& pair) { return std::string(pair.first) + "!"; }),
              "a!-b!");
}

// The longest that are compared have 64 letters.
TEST(NearestName, IsNoneOfNamesThatAreTooLong) {
    const std::string longest(64, 'a'), longer(65, 'a');
    const std::array<std::string_view, 1> name{longest}, long_name{longer};
    EXPECT_EQ(did_you_mean(longest.substr(1), name), "; did you mean " + longest + "?");
    EXPECT_EQ(did_you_mean(longest, long_name), "");
    EXPECT_EQ(did_you_mean(longer, name), "");
}

/// Capitals are their letters, and _ is -.
std::string plain(std::string_view text) {
    std::string found(text);
    for (char& c : found) c = c == '_' ? '-' : static_cast<char>(std::tolower(c));
    return found;
}

/// Letters to add, drop, change or swap with their neighbour, by its definition.
size_t changes(std::string_view a, std::string_view b) {
    if (a.empty() || b.empty()) return a.size() + b.size();
    size_t least = std::min({changes(a.substr(1), b) + 1, changes(a, b.substr(1)) + 1,
                             changes(a.substr(1), b.substr(1)) + (a[0] == b[0] ? 0U : 1U)});
    if (a.size() > 1 && b.size() > 1 && a[0] == b[1] && a[1] == b[0]) {
        least = std::min(least, changes(a.substr(2), b.substr(2)) + 1);
    }
    return least;
}

TEST(NearestName, HasTheLeastOfAllChanges) {
    std::mt19937 random(11);
    const auto name = [&](size_t most) {
        std::string text;
        for (size_t i = 1 + random() % most; i > 0; --i) text += "aAbBzZ_-@[c"[random() % 11];
        return text;
    };
    for (int round = 0; round < 2000; ++round) {
        const std::string given = name(5);
        const std::array<std::string, 3> names{name(5), name(5), given.substr(1) + name(2)};
        std::string best;
        size_t least = given.size() + 6;
        for (const std::string& one : names) {
            std::string letters = plain(one);
            std::string of_given = plain(given);
            size_t needs = changes(of_given, letters);
            std::erase(letters, '-');
            std::erase(of_given, '-');
            const bool begins = one.starts_with(given);
            if (begins) needs = 1;
            if (letters == of_given) needs = 0;
            if (3 * needs > std::max(one.size(), given.size()) && !begins) continue;
            if (needs >= least) continue;
            least = needs;
            best = "; did you mean " + one + "?";
        }
        const std::array<std::string_view, 3> known{names[0], names[1], names[2]};
        ASSERT_EQ(did_you_mean(given, known), best)
            << given << " of " << names[0] << " " << names[1] << " " << names[2];
    }
}

TEST(NearestName, IsOfferedForSchedulesAndVocabModes) {
    const auto error_of = [](auto call) {
        try {
            call();
        } catch (const UsageError& error) {
            return std::string(error.what());
        }
        return std::string("accepted");
    };
    using ::testing::HasSubstr;
    EXPECT_THAT(error_of([] { (void)generator("gpip"); }), HasSubstr("; did you mean gpipe?"));
    EXPECT_THAT(error_of([] { (void)vocab_mode_from("one-barier"); }),
                HasSubstr("; did you mean one_barrier?"));
}

}  // namespace
}  // namespace vocabpipe::testing
