// SPDX-License-Identifier: Apache-2.0
// Files as PyTorch writes them, and what the dialects mean.
#include "tests/schedule/files/parse.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::string_view kZeroBubble =
    "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2\r\n"
    "1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2\r\n";
constexpr std::string_view kZeroBubbleOld =
    "0F0,0F1,0BW0,0F2,0BW1,0BW2\n"
    "1F0,1B0,1F1,1B1,1W0,1F2,1B2,1W1,1W2\n";
constexpr std::string_view kOneFOneB =
    "0F0,0F1,,0B0,,0B1\n"
    ",1F0,1B0,1F1,1B1,\n";
constexpr std::string_view kDualPipeV =
    "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,(3F3;0B1)OVERLAP_F_"
    "B,3B3,0I2,0W2,0I3,0W3\r\n"
    "1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,2B2,"
    "1B2,2I3,1I3,2W3,1W3\r\n";

TEST(ScheduleCsv, ReadsAndPrintsTheZeroBubbleExample) {
    const Schedule schedule = from_csv(kZeroBubble).schedule;
    EXPECT_EQ(schedule.ranks, 2);
    EXPECT_EQ(schedule.stages, 2);
    EXPECT_EQ(schedule.microbatches, 3);
    EXPECT_THAT(schedule.rank_of_stage, ElementsAre(0, 1));
    EXPECT_EQ(schedule.output.vocab_size(), 0);
    EXPECT_THAT(csv_lists_of(schedule), ElementsAre("0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2",
                                                    "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"));
    EXPECT_EQ(print_schedule_csv(schedule, CsvDialect::current), kZeroBubble);
    EXPECT_EQ(print_schedule_csv(schedule, CsvDialect::automatic), kZeroBubble);
}

TEST(ScheduleCsv, ReadsAndPrintsTheSameExampleInTheOldDialect) {
    const Schedule schedule = from_csv(kZeroBubbleOld, CsvDialect::old).schedule;
    EXPECT_THAT(csv_lists_of(schedule),
                ElementsAre("0F0 0F1 0B0 0F2 0B1 0B2", "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"));
    EXPECT_EQ(print_schedule_csv(schedule, CsvDialect::old),
              "0F0,0F1,0BW0,0F2,0BW1,0BW2\r\n1F0,1B0,1F1,1B1,1W0,1F2,1B2,1W1,1W2\r\n");
}

TEST(ScheduleCsv, DropsIdleStepsAndBlanks) {
    const std::vector<std::string> lists{"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"};
    EXPECT_EQ(csv_lists_of(from_csv(kOneFOneB).schedule), lists);
    EXPECT_EQ(csv_lists_of(from_csv(" 0F0 ,\t0F1,0B0 , 0B1\r\n1F0,1B0,1F1,1B1").schedule), lists);
    EXPECT_EQ(csv_lists_of(from_csv("\xef\xbb\xbf"
                                    "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1")
                               .schedule),
              lists);
}

TEST(ScheduleCsv, TakesAnEmptyLineForARankWithoutPasses) {
    const Schedule schedule = from_csv("0F0,0B0\n\n1F0,1B0\n\n").schedule;
    EXPECT_THAT(csv_lists_of(schedule), ElementsAre("0F0 0B0", "", "1F0 1B0", ""));
    EXPECT_THAT(schedule.rank_of_stage, ElementsAre(0, 2));
    EXPECT_THAT(from_csv("0F0,0B0\n\n").notes,
                Contains(HasSubstr("the last line is blank, so rank 1 has no passes")));
    EXPECT_THAT(from_csv("0F0,0B0\n\n", CsvDialect::current, 2).notes, IsEmpty());
}

TEST(ScheduleCsv, TakesCellsInQuotes) {
    EXPECT_EQ(csv_lists_of(
                  from_csv("\"0F0\",\"0F1\",\"\",0B0,\"0B1\"\r\n\"1F0\",1B0,1F1,\"1B1\"").schedule),
              (std::vector<std::string>{"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"}));
    EXPECT_THROW((void)from_csv("\"0F0,0B0\n"), InputFileError);
    EXPECT_THROW((void)from_csv("\"0F0\"x,0B0\n"), InputFileError);
}

TEST(ScheduleCsv, ReadsAndPrintsOverlappedPairs) {
    const Schedule schedule = from_csv(kDualPipeV).schedule;
    EXPECT_THAT(schedule.rank_of_stage, ElementsAre(0, 1, 1, 0));
    EXPECT_THAT(csv_lists_of(schedule)[0],
                HasSubstr("3F1 0F3&3B1 3F2&0B0 3B2 3F3&0B1 3B3 0I2 0W2"));
    EXPECT_EQ(print_schedule_csv(schedule, CsvDialect::current), kDualPipeV);
    EXPECT_THROW((void)print_schedule_csv(schedule, CsvDialect::old), UsageError);
}

TEST(ScheduleCsv, InTheOldDialectTakesBWithoutWForAFullBackward) {
    EXPECT_THAT(csv_lists_of(from_csv("0F0,0F1,0B0,0B1,0W1\n", CsvDialect::old).schedule),
                ElementsAre("0F0 0F1 0B0 0I1 0W1"));
}

struct Choice {
    std::string text;
    CsvDialect dialect;
    std::string note;
};

TEST(ScheduleCsv, ChoosesTheDialectByWhatAFileContainsAndSaysWhy) {
    const Choice choices[] = {
        {std::string(kZeroBubble), CsvDialect::current, "new dialect because of row 1, cell 3"},
        {std::string(kDualPipeV), CsvDialect::current, "new dialect because of row 1, cell 5"},
        {std::string(kZeroBubbleOld), CsvDialect::old, "old dialect because of row 1, cell 3"},
        {"0F0,0B0,0W0\n", CsvDialect::old, "old dialect because of row 1, cell 2, \"0B0\""},
        {std::string(kOneFOneB), CsvDialect::current, "its cells are the same in both dialects"},
    };
    for (const Choice& choice : choices) {
        const ScheduleFile file = from_csv(choice.text, CsvDialect::automatic);
        EXPECT_EQ(csv_lists_of(file.schedule),
                  csv_lists_of(from_csv(choice.text, choice.dialect).schedule));
        ASSERT_EQ(file.notes.size(), 1U);
        EXPECT_THAT(file.notes.front(), HasSubstr(choice.note));
        EXPECT_THAT(from_csv(choice.text, choice.dialect).notes, IsEmpty());
    }
    EXPECT_THAT(refused_csv("0F0,0I0,0W0,0F1,0BW1\n", CsvDialect::automatic),
                HasSubstr("row 1, cell 2, \"0I0\" is PyTorch's new dialect, but row 1, cell 5, "
                          "\"0BW1\" is the old one"));
}

TEST(ScheduleCsv, KeepsVocabularyPassesInADialectOfItsOwn) {
    const std::string text =
        "vocabpipe 1,barriers one,input 0 4 10,output 0 5 10\r\n"
        "E0,0F0,S0,0B0,T0,G0\r\n"
        "E0,1F0,S0,1B0,T0,G0\r\n";
    const Schedule schedule = from_csv(text).schedule;
    EXPECT_EQ(schedule.barriers, Barriers::one);
    EXPECT_THAT(schedule.input.first_row, ElementsAre(0, 4, 10));
    EXPECT_THAT(schedule.output.first_row, ElementsAre(0, 5, 10));
    EXPECT_THAT(csv_lists_of(schedule), ElementsAre("E0 0F0 S0 0B0 T0 G0", "E0 1F0 S0 1B0 T0 G0"));
    EXPECT_EQ(print_schedule_csv(schedule, CsvDialect::vocabpipe), text);
    EXPECT_EQ(print_schedule_csv(schedule, CsvDialect::automatic), text);
    EXPECT_THROW((void)print_schedule_csv(schedule, CsvDialect::current), UsageError);
}

TEST(ScheduleCsv, LeavesWholeVocabularyLayersToPyTorchsFirstAndLastStage) {
    Schedule schedule = from_csv(
                            "vocabpipe 1,barriers in_line,input 0 9 9,output 0 0 9\n"
                            "E0,0F0,0B0,G0\n"
                            "1F0,S0,T0,1B0\n")
                            .schedule;
    EXPECT_EQ(print_schedule_csv(schedule, CsvDialect::automatic), "0F0,0B0\r\n1F0,1B0\r\n");
    schedule.output = ShardMap::whole(9, 2, 0);  // not where the last stage is
    EXPECT_THROW((void)print_schedule_csv(schedule, CsvDialect::current), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
