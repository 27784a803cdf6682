// SPDX-License-Identifier: Apache-2.0
// parse(print(x)) is x, in every format, for schedules of every family and for random ones.
#include "tests/schedule/files/parse.hpp"
#include "tests/schedule/program_tools.hpp"
#include "tests/support/random_schedule.hpp"
#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

void expect_equal(const Schedule& a, const Schedule& b) {
    EXPECT_EQ(a.ranks, b.ranks);
    EXPECT_EQ(a.stages, b.stages);
    EXPECT_EQ(a.microbatches, b.microbatches);
    EXPECT_EQ(a.rank_of_stage, b.rank_of_stage);
    EXPECT_EQ(a.input, b.input);
    EXPECT_EQ(a.output, b.output);
    EXPECT_EQ(a.barriers, b.barriers);
    EXPECT_EQ(a.passes, b.passes);
}

void expect_round_trips(const Schedule& schedule) {
    const std::string json = print_schedule_json(schedule);
    expect_equal(parse_schedule_json(json, "a.json").schedule, schedule);
    const std::string csv = print_schedule_csv(schedule, CsvDialect::vocabpipe);
    expect_equal(from_csv(csv).schedule, schedule);
}

Schedule transformer_only(Schedule schedule) {
    for (auto& list : schedule.passes) {
        std::erase_if(list, [](const Pass& pass) { return traits(pass.op).vocabulary; });
    }
    schedule.input = schedule.output = ShardMap::even(0, schedule.ranks);
    schedule.barriers = Barriers::in_line;
    return schedule;
}

class RoundTrip : public ::testing::TestWithParam<Kind> {};

TEST_P(RoundTrip, KeepsEverySchedule) {
    for (const int p : {1, 2, 3, 4, 8}) {
        for (const int m : {1, 3, 2 * p + 1}) {
            for (const int64_t rows : {3, 1000}) {
                SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
                const Schedule schedule = generated(GetParam(), p, m, rows);
                expect_round_trips(schedule);
                expect_round_trips(with_recomputation(schedule));
                if (HasFailure()) return;
            }
        }
    }
}

TEST_P(RoundTrip, KeepsTheTransformerPassesInPyTorchsDialects) {
    const Schedule schedule = transformer_only(generated(GetParam(), 4, 9));
    for (const CsvDialect dialect : {CsvDialect::current, CsvDialect::old}) {
        const bool pairs = std::any_of(
            schedule.passes.begin(), schedule.passes.end(), [](const std::vector<Pass>& list) {
                return std::any_of(list.begin(), list.end(),
                                   [](const Pass& pass) { return pass.with_next; });
            });
        if (dialect == CsvDialect::old && pairs) continue;
        const std::string text = print_schedule_csv(schedule, dialect);
        expect_equal(from_csv(text, dialect).schedule, schedule);
        expect_equal(from_csv(text, CsvDialect::automatic).schedule, schedule);
    }
}

std::string identifier(const Kind& kind) {
    std::string name = name_of(kind);
    for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    }
    return name;
}

INSTANTIATE_TEST_SUITE_P(, RoundTrip, ::testing::ValuesIn(every_kind(true)),
                         [](const auto& info) { return identifier(info.param); });

TEST(RoundTripOfRandomSchedules, KeepsPlacementsShardsAndSplitBackwards) {
    std::mt19937 random(5);
    for (int i = 0; i < 500; ++i) {
        const Schedule schedule = random_schedule(random, {});
        expect_round_trips(schedule);
        Schedule bare = transformer_only(schedule);
        const Schedule recomputed = bare;
        for (auto& list : bare.passes) {
            std::erase_if(list, [](const Pass& pass) { return pass.op == Op::R; });
        }
        for (const CsvDialect dialect : {CsvDialect::current, CsvDialect::old}) {
            expect_equal(from_csv(print_schedule_csv(bare, dialect), dialect).schedule, bare);
        }
        expect_equal(from_csv(print_schedule_csv(recomputed, CsvDialect::automatic)).schedule,
                     recomputed);
        ASSERT_FALSE(HasFailure()) << describe(schedule);
    }
}

TEST(RecomputationInFiles, IsReadInEveryDialectAndNotWrittenInPyTorchs) {
    for (const CsvDialect dialect : {CsvDialect::current, CsvDialect::old}) {
        const std::string backward = dialect == CsvDialect::old ? "0BW0" : "0B0";
        const Schedule schedule = from_csv("0F0,0R0," + backward + "\n", dialect).schedule;
        ASSERT_EQ(schedule.passes[0].size(), 3U);
        EXPECT_EQ(schedule.passes[0][1], (Pass{Op::R, 0, 0}));
        EXPECT_EQ(csv_dialect_of(schedule, CsvDialect::automatic), CsvDialect::vocabpipe);
        EXPECT_THAT([&] { (void)print_schedule_csv(schedule, dialect); },
                    ::testing::ThrowsMessage<UsageError>(::testing::HasSubstr(
                        "PyTorch's files have no recomputation passes (R); write the dialect "
                        "vocabpipe, or JSON")));
    }
}

TEST(ScheduleFiles, AreWrittenAndReadByTheirNames) {
    const TempFolder folder;
    const Schedule schedule = generated({"1f1b", VocabMode::one_barrier, false}, 3, 5);
    for (const char* name : {"a.csv", "a.json"}) {
        write_schedule(folder / name, schedule);
        expect_equal(read_schedule(folder / name).schedule, schedule);
    }
    EXPECT_THROW(write_schedule(folder / "a.txt", schedule), UsageError);
    EXPECT_THROW(write_schedule(folder / "no/folder.json", schedule), OutputFileError);
}

}  // namespace
}  // namespace vocabpipe::testing
