// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/files/parse.hpp"
#include "tests/schedule/program_tools.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kSchedule = R"({
  "format": "vocabpipe schedule",
  "version": 1,
  "ranks": 2,
  "stages": 2,
  "microbatches": 2,
  "rank_of_stage": [0, 1],
  "barriers": "two",
  "input": [0, 4, 4],
  "output": [0, 2, 4],
  "passes": [
    ["E0", "0F0", "S0", "T0", "E1", "0F1", "0B0", "G0", "S1", "T1", "0B1", "G1"],
    ["1F0", "S0", "T0", "1F1", "1B0", "S1", "T1", "1B1"]
  ]
}
)";

std::string refused(std::string_view from, std::string_view to, int ranks = 0) {
    std::string text(kSchedule);
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    try {
        (void)parse_schedule_json(text, "a.json", {.ranks = ranks});
    } catch (const InputFileError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(ScheduleJson, HoldsACompleteSchedule) {
    const Schedule schedule = parse_schedule_json(kSchedule, "a.json").schedule;
    EXPECT_EQ(schedule.barriers, Barriers::two);
    EXPECT_EQ(schedule.input.rows(1), 0);
    EXPECT_EQ(schedule.output.rows(1), 2);
    EXPECT_EQ(schedule.passes[1][1], (Pass{Op::S, 0, 0}));
    EXPECT_EQ(print_schedule_json(schedule), kSchedule);
}

TEST(ScheduleJson, NamesThePathOfEveryError) {
    EXPECT_EQ(refused("\"1B1\"]", "\"1B1\", \"2F0\"]"),
              "a.json: passes[1][8]: 2F0 stage 2 does not exist; the last stage is 1");
    EXPECT_EQ(refused("\"1B0\"", "\"1BW0\""),
              "a.json: passes[1][4]: \"1BW0\": BW is the full backward of PyTorch's old dialect; "
              "write 1B0, or read the file in the dialect old (vocabpipe schedule convert "
              "--dialect old)");
    EXPECT_EQ(refused(", \"1B1\"]", "]"),
              "a.json: passes[1]: 1B1 is missing; stage 1 needs one per microbatch");
    EXPECT_EQ(refused("\"1B1\"", "7"), "a.json: passes[1][7]: must be a string in quotes");
    EXPECT_EQ(refused("\"1B1\"", "\" \""), "a.json: passes[1][7]: \" \": omit idle steps");
    EXPECT_EQ(refused("\"1B1\"", "\"1SEND_F1\""),
              "a.json: passes[1][7]: \"1SEND_F1\": \"SEND_F\" is not a pass; use one of F I W B R "
              "E G S T");
    EXPECT_EQ(refused("[0, 1]", "[0, 2]"),
              "a.json: rank_of_stage[1]: 2: must be an integer from 0 to 1");
    EXPECT_EQ(refused("[0, 1]", "[0]"), "a.json: rank_of_stage: has 1 entries; expected 2");
    EXPECT_EQ(refused("[0, 4, 4]", "[0, 5, 4]"),
              "a.json: schedule: input shard map: rank 1 ends at row 4, before its first row 5");
    EXPECT_EQ(
        refused("\"two\"", "\"tow\""),
        "a.json: barriers: barriers \"tow\": must be one of in_line, one, two; did you mean two?");
    EXPECT_EQ(refused("\"ranks\": 2", "\"ranks\": 2", 3),
              "a.json: ranks: is 2, but expected 3 ranks");
    EXPECT_EQ(refused("\"version\": 1", "\"version\": 2"),
              "a.json: version: 2: must be an integer from 1 to 1");
    EXPECT_EQ(refused("vocabpipe schedule", "schedule"),
              "a.json: format: must be \"vocabpipe schedule\"");
    EXPECT_THAT(refused("\"version\": 1,", ""), HasSubstr("\"version\" is missing"));
    EXPECT_THAT(refused("\"ranks\": 2", "\"ranks\": 2, \"ranks\": 2"), HasSubstr("appears twice"));
    EXPECT_THAT(refused("\"ranks\"", "\"pp\": 2, \"ranks\""), HasSubstr("unknown key \"pp\""));
    EXPECT_THAT(refused("\"ranks\": 2,", "\"ranks\": 2"), HasSubstr("not valid JSON: parse error"));
}

TEST(ScheduleJson, PrintsOverlappedPairs) {
    const Schedule schedule = from_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n").schedule;
    const std::string text = print_schedule_json(schedule);
    EXPECT_THAT(text, HasSubstr(R"(["0F0", "(0F1;0B0)OVERLAP_F_B", "0B1"])"));
    EXPECT_EQ(parse_schedule_json(text, "a.json").schedule.passes, schedule.passes);
}

}  // namespace
}  // namespace vocabpipe::testing
