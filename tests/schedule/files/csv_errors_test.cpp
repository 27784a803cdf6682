// SPDX-License-Identifier: Apache-2.0
// Broken files: every error names the file, the row, the cell and the remedy.
#include "tests/schedule/files/parse.hpp"

#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

// Cells of which PyTorch's reader takes a prefix, without an error.
TEST(BrokenCsv, IsNotReadByPrefixes) {
    EXPECT_EQ(refused_csv("0F3,0BW3\n"),
              "a.csv: row 1, cell 2, \"0BW3\": BW is the full backward of PyTorch's old dialect; "
              "write 0B3, or read the file in the dialect old (vocabpipe schedule convert "
              "--dialect old)");
    EXPECT_EQ(
        refused_csv("0F0,0B0\n1F0,0SEND_F1_1RECV_B0\n"),
        "a.csv: row 2, cell 2, \"0SEND_F1_1RECV_B0\": two transfers in one cell are PyTorch's old "
        "dialect; split them into two cells, or read the file in the dialect old (vocabpipe "
        "schedule convert --dialect old)");
    EXPECT_EQ(refused_csv("0F0,2F7junk\n"),
              "a.csv: row 1, cell 2, \"2F7junk\": has extra text \"junk\" after a complete pass");
}

// Names as in schedule_oracles.json, `negative_cases`.
TEST(BrokenCsv, OldDialectToken) {
    EXPECT_EQ(refused_csv("0F0,0BW0\n"),
              "a.csv: row 1, cell 2, \"0BW0\": BW is the full backward of PyTorch's old dialect; "
              "write 0B0, or read the file in the dialect old (vocabpipe schedule convert "
              "--dialect old)");
    EXPECT_EQ(refused_csv("0F0,0I0,0W0\n", CsvDialect::old),
              "a.csv: row 1, cell 2, \"0I0\": I is the input gradient of PyTorch's new dialect; "
              "write 0B0, or read the file in the dialect new (vocabpipe schedule convert "
              "--dialect new)");
}

// Compute files of both dialects that hold no word of their own: B and W of one microbatch.
TEST(BrokenCsv, OfTheOtherDialectNamesIt) {
    EXPECT_EQ(
        refused_csv("0F0,0F1,0B0,0B1,0W0,0W1\n"),
        "a.csv: row 1, cell 5, \"0W0\": 0W0 is half a backward next to 0B0; a microbatch has B, or "
        "I and W; if a B with a W is an input gradient here, read the file in the dialect old "
        "(vocabpipe schedule convert --dialect old)");
    EXPECT_EQ(refused_csv("0F0,0F1,0I0,0I1,0W0\n"),
              "a.csv: row 1: 0W1 is missing; stage 0 needs one per microbatch");
    for (const std::string word : {"REDUCE_GRAD", "WAIT_REDUCE_GRAD", "WAIT_SEND_F0"}) {
        const std::string bare = word.ends_with('0') ? "WAIT_SEND_F" : word;
        EXPECT_EQ(refused_csv("0F0,0B0,0" + word + "\n", CsvDialect::old),
                  "a.csv: row 1, cell 3, \"0" + word + "\": " + bare +
                      " is PyTorch's new dialect; read the file in the dialect new (vocabpipe "
                      "schedule convert --dialect new)");
    }
    EXPECT_EQ(refused_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n", CsvDialect::old),
              "a.csv: row 1, cell 2, \"(0F1;0B0)OVERLAP_F_B\": PyTorch's old dialect has no pairs; "
              "read the file in the dialect new (vocabpipe schedule convert --dialect new)");
}

TEST(BrokenCsv, MicrobatchMissingInToken) {
    EXPECT_EQ(refused_csv("0F0,0B\n"),
              "a.csv: row 1, cell 2, \"0B\": has no microbatch; write \"0B0\"");
}

TEST(BrokenCsv, WrongNumberOfRanks) {
    EXPECT_EQ(refused_csv("0F0,1F0,1B0,0B0\n", CsvDialect::current, 2),
              "a.csv: has 1 rows, but expected 2 ranks; a schedule has one row per rank");
}

TEST(BrokenCsv, PairMembersDepend) {
    EXPECT_EQ(refused_csv("(0F0;0B0)OVERLAP_F_B\n"),
              "a.csv: row 1, cell 1, \"(0F0;0B0)OVERLAP_F_B\": 0F0 is paired with 0B0, but one "
              "needs the other; a pair needs two microbatches");
}

struct Broken {
    std::string name, text, error;
};

void PrintTo(const Broken& broken, std::ostream* out) {
    *out << broken.text;
}

class BrokenCells : public ::testing::TestWithParam<Broken> {};

TEST_P(BrokenCells, AreRefusedWithPlaceAndRemedy) {
    EXPECT_EQ(refused_csv(GetParam().text), "a.csv: " + GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(
    , BrokenCells,
    ::testing::Values(
        Broken{"Empty", "", "has no rows; a schedule has one row per rank"},
        Broken{"OnlyAHeader", "vocabpipe 1,barriers one,input 0,output 0\n",
               "has no rows; a schedule has one row per rank"},
        Broken{"Words", "hello\n",
               "row 1, cell 1, \"hello\": is not <stage><pass><microbatch>, such as 2F0"},
        Broken{"UnknownPass", "0F0,0X0\n",
               "row 1, cell 2, \"0X0\": \"X\" is not a pass; use one of F I W B R"},
        Broken{"LowerCase", "0f0\n",
               "row 1, cell 1, \"0f0\": is not <stage><pass><microbatch>, such as 2F0"},
        Broken{"Quotes", "\"0F0,0B0\n", "row 1, cell 1, \"\"0F0\": its double quotes do not end"},
        Broken{"NoStage", "F0,0B0\n", "row 1, cell 1, \"F0\": has no stage; write \"0F0\""},
        Broken{"VocabularyPass", "0F0,S0,0B0\n",
               "row 1, cell 2, \"S0\": S is a vocabulary pass, which PyTorch's files do not have; "
               "start the file with a row \"vocabpipe 1,barriers ...,input ...,output ...\""},
        Broken{"LargeNumber", "0F4294967296\n",
               "row 1, cell 1, \"0F4294967296\": a number has more than 9 digits"},
        Broken{"LargeStage", "65535F0\n",
               "row 1, cell 1, \"65535F0\": stage 65535: must be at most 65534"},
        Broken{"LargeMicrobatch", "0F16777216\n",
               "row 1, cell 1, \"0F16777216\": microbatch 16777216: must be at most 16777215"},
        Broken{"ControlCharacters", "0F0,\x01\x7f\xff\n",
               "row 1, cell 2, \"???\": is not <stage><pass><microbatch>, such as 2F0"},
        Broken{"PairWithoutEnd", "(0F1;0B0)\n",
               "row 1, cell 1, \"(0F1;0B0)\": is a pair that does not end in )OVERLAP_F_B"},
        Broken{"PairOfThree", "(0F1;0B0;0F2)OVERLAP_F_B\n",
               "row 1, cell 1, \"(0F1;0B0;0F2)OVERLAP_F_B\": is a pair of 3 passes; a pair has 2"},
        Broken{"PairOfForwards", "(0F0;0F1)OVERLAP_F_B,0B0,0B1\n",
               "row 1, cell 1, \"(0F0;0F1)OVERLAP_F_B\": 0F0 is paired with 0F1; a pair is one F "
               "and one B or I"},
        Broken{"Header", "vocabpipe 2,barriers one,input 0 1,output 0 1\nE0,0F0,S0\n",
               "row 1: version \"2\": this build reads only version 1"},
        Broken{"HeaderBarriers", "vocabpipe 1,barriers onne,input 0 1,output 0 1\nE0,0F0,S0\n",
               "row 1: barriers \"onne\": must be one of in_line, one, two; did you mean one?"},
        Broken{"HeaderRows", "vocabpipe 1,barriers one,input 0 x,output 0 1\nE0,0F0,S0\n",
               "row 1: input: \"x\" is not a row number from 0 to 2^40"},
        Broken{"HeaderShards", "vocabpipe 1,barriers one,input 0 1 2,output 0 1\nE0,0F0,S0\n",
               "schedule: input shard map: has 3 entries; 1 ranks need 2"},
        Broken{"StageWithVocabularyPass",
               "vocabpipe 1,barriers one,input 0 1,output 0 1\nE0,0F0,0S0\n",
               "row 2, cell 3, \"0S0\": vocabulary passes have no stage; write \"S0\""},
        // What the validator finds, at its cell.
        Broken{"StageOnTwoRanks", "0F0,0F1,1B0,0B0,0B1\n1F0,1F1,1B1\n",
               "row 2, cell 1, \"1F0\": 1F0 belongs to a stage on rank 0; a stage must be on one "
               "rank"},
        Broken{"IdleStepsCount", "0F0,,,0W0\n",
               "row 1, cell 4, \"0W0\": 0W0 needs 0I0, which does not come before it"},
        Broken{"SecondOfAPair", "0F0,0F1,(0B0;0F1)OVERLAP_F_B\n",
               "row 1, cell 3, \"(0B0;0F1)OVERLAP_F_B\": 0F1 appears twice"},
        Broken{"MissingBackward", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n",
               "row 2: 1B1 is missing; stage 1 needs one per microbatch"},
        Broken{"StageGap", "0F0,0B0\n2F0,2B0\n",
               "row 1: 1F0 is missing; stage 1 needs one per microbatch"},
        Broken{"Cycle", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
               "row 1, cell 2, \"0B0\": 0B0 waits for 1B0 on rank 1 after 1F1 there, which waits "
               "for 0F1 on rank 0 after 0B0 there: a deadlock"}),
    [](const auto& info) { return info.param.name; });

TEST(BrokenCsv, OfAnotherKindIsRefusedByName) {
    EXPECT_THROW((void)read_schedule("no/such/file.csv"), InputFileError);
    EXPECT_THROW((void)read_schedule("/tmp/.json/../x.yaml"), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
