// SPDX-License-Identifier: Apache-2.0
// Lists that other projects generate. The strings are those of schedule_oracles.json of the
// schedules reference (section 14), unchanged, and those of section 4 of the vocabulary-parallelism
// reference.
#include "tests/schedules/notation.hpp"

#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

struct ReferenceCase {
    std::string id;  ///< as in schedule_oracles.json; the section for worked lists
    std::string family;
    VocabMode mode;
    int microbatches;
    Notation notation;
    bool transformer_only;
    std::vector<std::string> lists;
};

void PrintTo(const ReferenceCase& reference, std::ostream* out) {
    *out << reference.id;
}

const std::vector<ReferenceCase> kCases{
    {"gpipe_p2_m4",
     "gpipe",
     VocabMode::none,
     4,
     {},
     true,
     {"0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3", "1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3"}},
    {"gpipe_p4_m8",
     "gpipe",
     VocabMode::none,
     8,
     {},
     true,
     {"0F0 0F1 0F2 0F3 0F4 0F5 0F6 0F7 0B0 0B1 0B2 0B3 0B4 0B5 0B6 0B7",
      "1F0 1F1 1F2 1F3 1F4 1F5 1F6 1F7 1B0 1B1 1B2 1B3 1B4 1B5 1B6 1B7",
      "2F0 2F1 2F2 2F3 2F4 2F5 2F6 2F7 2B0 2B1 2B2 2B3 2B4 2B5 2B6 2B7",
      "3F0 3F1 3F2 3F3 3F4 3F5 3F6 3F7 3B0 3B1 3B2 3B3 3B4 3B5 3B6 3B7"}},
    {"1f1b_p2_m4",
     "1f1b",
     VocabMode::none,
     4,
     {},
     true,
     {"0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3", "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"}},
    {"1f1b_p4_m8",
     "1f1b",
     VocabMode::none,
     8,
     {},
     true,
     {"0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7",
      "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7",
      "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7",
      "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7"}},
    {"1f1b_p4_m4",
     "1f1b",
     VocabMode::none,
     4,
     {},
     true,
     {"0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3", "1F0 1F1 1F2 1B0 1F3 1B1 1B2 1B3",
      "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2B3", "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3"}},
    {"1f1b_p4_m3",
     "1f1b",
     VocabMode::none,
     3,
     {},
     true,
     {"0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1F1 1F2 1B0 1B1 1B2", "2F0 2F1 2B0 2F2 2B1 2B2",
      "3F0 3B0 3F1 3B1 3F2 3B2"}},
    {"1f1b_p4_m2",
     "1f1b",
     VocabMode::none,
     2,
     {},
     true,
     {"0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1", "2F0 2F1 2B0 2B1", "3F0 3B0 3F1 3B1"}},
    {"vocab1bar_p2_m4",
     "1f1b",
     VocabMode::one_barrier,
     4,
     {.microbatches = 4, .unit = Unit::delayed},
     false,
     {"IF0 IF1 F0 IF2 F1 S0 F2 S1 IF3 B0 S2 F3 B1 S3 IB0 B2 IB1 B3 IB2 IB3 S4",
      "IF0 IF1 IF2 F0 S0 F1 B0 S1 IF3 F2 B1 S2 F3 B2 S3 IB0 B3 IB1 IB2 IB3 S4"}},
    {"vocab1bar_p4_m8",
     "1f1b",
     VocabMode::one_barrier,
     8,
     {.microbatches = 8, .unit = Unit::delayed},
     false,
     {"IF0 IF1 F0 IF2 F1 IF3 F2 IF4 F3 S0 F4 S1 S2 S3 IF5 B0 F5 S4 IF6 B1 F6 S5 IF7 IB0 B2 F7 S6 "
      "IB1 B3 S7 IB2 B4 IB3 B5 IB4 B6 IB5 B7 IB6 IB7 S8",
      "IF0 IF1 IF2 F0 IF3 F1 IF4 F2 S0 F3 S1 S2 B0 S3 IF5 F4 B1 S4 IF6 F5 B2 S5 IF7 IB0 F6 B3 S6 "
      "IB1 F7 B4 S7 IB2 B5 IB3 B6 IB4 B7 IB5 IB6 IB7 S8",
      "IF0 IF1 IF2 IF3 F0 IF4 F1 S0 F2 S1 B0 S2 F3 B1 S3 IF5 F4 B2 S4 IF6 F5 B3 S5 IF7 IB0 F6 B4 "
      "S6 IB1 F7 B5 S7 IB2 B6 IB3 B7 IB4 IB5 IB6 IB7 S8",
      "IF0 IF1 IF2 IF3 IF4 F0 S0 F1 B0 S1 F2 B1 S2 F3 B2 S3 IF5 F4 B3 S4 IF6 F5 B4 S5 IF7 IB0 F6 "
      "B5 S6 IB1 F7 B6 S7 IB2 B7 IB3 IB4 IB5 IB6 IB7 S8"}},
    {"vocab2bar_p2_m4",
     "1f1b",
     VocabMode::two_barriers,
     4,
     {.microbatches = 4, .unit = Unit::delayed},
     false,
     {"IF0 IF1 F0 IF2 F1 S0 IF3 F2 S1 F3 S2 B0 S3 B1 S4 IB0 B2 IB1 B3 IB2 IB3",
      "IF0 IF1 IF2 F0 S0 IF3 F1 S1 F2 B0 S2 F3 B1 S3 B2 S4 IB0 B3 IB1 IB2 IB3"}},
    {"vocab2bar_p4_m8",
     "1f1b",
     VocabMode::two_barriers,
     8,
     {.microbatches = 8, .unit = Unit::delayed},
     false,
     {"IF0 IF1 F0 IF2 F1 IF3 F2 IF4 F3 S0 IF5 F4 S1 F5 S2 S3 S4 IF6 B0 F6 S5 IF7 B1 F7 S6 IB0 B2 "
      "S7 IB1 B3 S8 IB2 B4 IB3 B5 IB4 B6 IB5 B7 IB6 IB7",
      "IF0 IF1 IF2 F0 IF3 F1 IF4 F2 S0 IF5 F3 S1 F4 S2 S3 B0 S4 IF6 F5 B1 S5 IF7 F6 B2 S6 IB0 F7 "
      "B3 S7 IB1 B4 S8 IB2 B5 IB3 B6 IB4 B7 IB5 IB6 IB7",
      "IF0 IF1 IF2 IF3 F0 IF4 F1 S0 IF5 F2 S1 F3 S2 B0 S3 F4 B1 S4 IF6 F5 B2 S5 IF7 F6 B3 S6 IB0 "
      "F7 B4 S7 IB1 B5 S8 IB2 B6 IB3 B7 IB4 IB5 IB6 IB7",
      "IF0 IF1 IF2 IF3 IF4 F0 S0 IF5 F1 S1 F2 B0 S2 F3 B1 S3 F4 B2 S4 IF6 F5 B3 S5 IF7 F6 B4 S6 "
      "IB0 F7 B5 S7 IB1 B6 S8 IB2 B7 IB3 IB4 IB5 IB6 IB7"}},
    {"interlaced_p2_m4",
     "1f1b",
     VocabMode::interlaced,
     4,
     {.unit = Unit::joint},
     false,
     {"IF0 IF1 F0 IF2 F1 IF3 F2 S0 S1 B0 S2 F3 B1 S3 IB0 B2 IB1 B3 IB2 IB3",
      "IF0 IF1 IF2 F0 IF3 F1 S0 B0 S1 B1 F2 S2 B2 F3 S3 IB0 B3 IB1 IB2 IB3"}},
    {"interlaced_p4_m8",
     "1f1b",
     VocabMode::interlaced,
     8,
     {.unit = Unit::joint},
     false,
     {"IF0 IF1 F0 IF2 F1 IF3 F2 IF4 F3 IF5 F4 IF6 F5 S0 S1 S2 S3 IF7 B0 S4 F6 B1 S5 IB0 F7 B2 S6 "
      "IB1 B3 S7 IB2 B4 IB3 B5 IB4 B6 IB5 B7 IB6 IB7",
      "IF0 IF1 IF2 F0 IF3 F1 IF4 F2 IF5 F3 IF6 F4 S0 S1 S2 B0 S3 IF7 B1 F5 S4 B2 F6 S5 IB0 B3 F7 "
      "S6 IB1 B4 S7 IB2 B5 IB3 B6 IB4 B7 IB5 IB6 IB7",
      "IF0 IF1 IF2 IF3 F0 IF4 F1 IF5 F2 IF6 F3 S0 S1 B0 S2 B1 S3 IF7 F4 B2 S4 F5 B3 S5 IB0 F6 B4 "
      "S6 IB1 F7 B5 S7 IB2 B6 IB3 B7 IB4 IB5 IB6 IB7",
      "IF0 IF1 IF2 IF3 IF4 F0 IF5 F1 IF6 F2 S0 B0 S1 B1 S2 B2 F3 S3 IF7 B3 F4 S4 B4 F5 S5 IB0 B5 "
      "F6 S6 IB1 B6 F7 S7 IB2 B7 IB3 IB4 IB5 IB6 IB7"}},
    {"section_4_1",
     "1f1b",
     VocabMode::none,
     8,
     {.first = 1},
     true,
     {"F1 F2 F3 F4 B1 F5 B2 F6 B3 F7 B4 F8 B5 B6 B7 B8",
      "F1 F2 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 F8 B6 B7 B8",
      "F1 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 F8 B7 B8",
      "F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 F8 B8"}},
    {"section_4_2",
     "1f1b",
     VocabMode::two_barriers,
     8,
     {.first = 1},
     false,
     {"E1 E2 F1 E3 F2 E4 F3 E5 F4 S1 E6 F5 T1+S2 F6 T2+S3 T3+S4 T4+S5 E7 B1 F7 T5+S6 E8 B2 F8 "
      "T6+S7 G1 B3 T7+S8 G2 B4 T8 G3 B5 G4 B6 G5 B7 G6 B8 G7 G8",
      "E1 E2 E3 F1 E4 F2 E5 F3 S1 E6 F4 T1+S2 F5 T2+S3 T3+S4 B1 T4+S5 E7 F6 B2 T5+S6 E8 F7 B3 "
      "T6+S7 G1 F8 B4 T7+S8 G2 B5 T8 G3 B6 G4 B7 G5 B8 G6 G7 G8",
      "E1 E2 E3 E4 F1 E5 F2 S1 E6 F3 T1+S2 F4 T2+S3 B1 T3+S4 F5 B2 T4+S5 E7 F6 B3 T5+S6 E8 F7 B4 "
      "T6+S7 G1 F8 B5 T7+S8 G2 B6 T8 G3 B7 G4 B8 G5 G6 G7 G8",
      "E1 E2 E3 E4 E5 F1 S1 E6 F2 T1+S2 F3 B1 T2+S3 F4 B2 T3+S4 F5 B3 T4+S5 E7 F6 B4 T5+S6 E8 F7 "
      "B5 T6+S7 G1 F8 B6 T7+S8 G2 B7 T8 G3 B8 G4 G5 G6 G7 G8"}},
    {"section_4_3",
     "1f1b",
     VocabMode::one_barrier,
     8,
     {.first = 1},
     false,
     {"E1 E2 F1 E3 F2 E4 F3 E5 F4 S1 F5 T1+S2 T2+S3 T3+S4 E6 B1 F6 T4+S5 E7 B2 F7 T5+S6 E8 G1 B3 "
      "F8 T6+S7 G2 B4 T7+S8 G3 B5 G4 B6 G5 B7 G6 B8 G7 G8 T8",
      "E1 E2 E3 F1 E4 F2 E5 F3 S1 F4 T1+S2 T2+S3 B1 T3+S4 E6 F5 B2 T4+S5 E7 F6 B3 T5+S6 E8 G1 F7 "
      "B4 T6+S7 G2 F8 B5 T7+S8 G3 B6 G4 B7 G5 B8 G6 G7 G8 T8",
      "E1 E2 E3 E4 F1 E5 F2 S1 F3 T1+S2 B1 T2+S3 F4 B2 T3+S4 E6 F5 B3 T4+S5 E7 F6 B4 T5+S6 E8 G1 "
      "F7 B5 T6+S7 G2 F8 B6 T7+S8 G3 B7 G4 B8 G5 G6 G7 G8 T8",
      "E1 E2 E3 E4 E5 F1 S1 F2 B1 T1+S2 F3 B2 T2+S3 F4 B3 T3+S4 E6 F5 B4 T4+S5 E7 F6 B5 T5+S6 E8 "
      "G1 F7 B6 T6+S7 G2 F8 B7 T7+S8 G3 B8 G4 G5 G6 G7 G8 T8"}},
    {"section_4_4",
     "1f1b",
     VocabMode::interlaced,
     8,
     {.first = 1},
     false,
     {"E1 E2 F1 E3 F2 E4 F3 E5 F4 E6 F5 E7 F6 ST1 ST2 ST3 ST4 E8 B1 ST5 F7 B2 ST6 G1 F8 B3 ST7 G2 "
      "B4 ST8 G3 B5 G4 B6 G5 B7 G6 B8 G7 G8",
      "E1 E2 E3 F1 E4 F2 E5 F3 E6 F4 E7 F5 ST1 ST2 ST3 B1 ST4 E8 B2 F6 ST5 B3 F7 ST6 G1 B4 F8 ST7 "
      "G2 B5 ST8 G3 B6 G4 B7 G5 B8 G6 G7 G8",
      "E1 E2 E3 E4 F1 E5 F2 E6 F3 E7 F4 ST1 ST2 B1 ST3 B2 ST4 E8 F5 B3 ST5 F6 B4 ST6 G1 F7 B5 ST7 "
      "G2 F8 B6 ST8 G3 B7 G4 B8 G5 G6 G7 G8",
      "E1 E2 E3 E4 E5 F1 E6 F2 E7 F3 ST1 B1 ST2 B2 ST3 B3 F4 ST4 E8 B4 F5 ST5 B5 F6 ST6 G1 B6 F7 "
      "ST7 G2 B7 F8 ST8 G3 B8 G4 G5 G6 G7 G8"}},
};

class ReferenceLists : public ::testing::TestWithParam<ReferenceCase> {};

TEST_P(ReferenceLists, AreReproducedPassForPass) {
    const ReferenceCase& reference = GetParam();
    const int ranks = static_cast<int>(reference.lists.size());
    const Schedule schedule =
        make_schedule(reference.family, {.ranks = ranks,
                                         .microbatches = reference.microbatches,
                                         .vocab_mode = reference.mode,
                                         .vocab_size = 1000});
    ASSERT_EQ(schedule.passes.size(), reference.lists.size());
    for (int rank = 0; rank < ranks; ++rank) {
        Notation notation = reference.notation;
        notation.stage = rank;
        const auto r = static_cast<size_t>(rank);
        const auto& list = schedule.passes[r];
        EXPECT_EQ(text_of(reference.transformer_only ? transformer_passes(list) : list),
                  text_of(passes_from(reference.lists[r], notation)))
            << "rank " << rank;
    }
}

INSTANTIATE_TEST_SUITE_P(, ReferenceLists, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.id; });

// Section 3.5 for odd p, where the reference project fails and has no lists: written out by hand
// from the rule for p = 3, m = 8 (one-based, as there).
TEST(InterlacedOneFOneB, FollowsTheRuleForAnOddNumberOfRanks) {
    const std::vector<std::string> expected{
        "E1 E2 F1 E3 F2 E4 F3 E5 F4 ST1 ST2 ST3 E6 B1 F5 ST4 E7 G1 B2 F6 ST5 E8 G2 B3 F7 ST6 G3 "
        "B4 F8 ST7 G4 B5 ST8 G5 B6 G6 B7 G7 B8 G8",
        "E1 E2 E3 F1 E4 F2 E5 F3 ST1 ST2 B1 ST3 E6 F4 B2 ST4 E7 G1 F5 B3 ST5 E8 G2 F6 B4 ST6 G3 "
        "F7 B5 ST7 G4 F8 B6 ST8 G5 B7 G6 B8 G7 G8",
        "E1 E2 E3 E4 F1 E5 F2 ST1 B1 ST2 B2 F3 ST3 E6 B3 F4 ST4 E7 G1 B4 F5 ST5 E8 G2 B5 F6 ST6 "
        "G3 B6 F7 ST7 G4 B7 F8 ST8 G5 B8 G6 G7 G8"};
    const Schedule schedule = make_schedule(
        "1f1b",
        {.ranks = 3, .microbatches = 8, .vocab_mode = VocabMode::interlaced, .vocab_size = 1000});
    for (int rank = 0; rank < 3; ++rank) {
        const auto r = static_cast<size_t>(rank);
        EXPECT_EQ(text_of(schedule.passes[r]),
                  text_of(passes_from(expected[r], {.stage = rank, .first = 1})));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
