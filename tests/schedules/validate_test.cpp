// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/validate.hpp"

#include "tests/schedules/notation.hpp"
#include "tests/support/brute_force_checker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

/// The smallest schedule with everything: two ranks, two microbatches, a shard on each.
Schedule small() {
    Schedule schedule{.ranks = 2,
                      .stages = 2,
                      .microbatches = 2,
                      .rank_of_stage = {0, 1},
                      .input = ShardMap::even(10, 2),
                      .output = ShardMap::even(10, 2),
                      .barriers = Barriers::one,
                      .passes = {}};
    schedule.passes.push_back(passes_from("E0 E1 F0 F1 S0 T0 S1 B0 T1 B1 G0 G1", {.stage = 0}));
    schedule.passes.push_back(passes_from("E0 E1 F0 S0 F1 B0 T0 S1 B1 T1 G0 G1", {.stage = 1}));
    return schedule;
}

struct Refusal {
    std::string id;
    int microbatches;
    std::vector<int> rank_of_stage;
    std::vector<std::string> lists;
    int rank;
    int index;
    std::string pass;
    std::string reason;
};

void PrintTo(const Refusal& refusal, std::ostream* out) {
    *out << refusal.id;
}

// The invalid schedules of schedule_oracles.json that lists of passes can express; not among them
// are transfers and misspelt tokens. What must be reported was worked out by
// hand.
const std::vector<Refusal> kRefusals{
    {"torch_1f1b_ir_off_by_one",
     8,
     {0, 1, 2, 3},
     {"0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7",
      "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7",
      "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7",
      "3F1 3B0 3F2 3B1 3F3 3B2 3F4 3B3 3F5 3B4 3F6 3B5 3F7 3B6 3F8 3B7"},
     3,
     1,
     "3B0",
     "needs 3F0"},
    {"jaxpp_interleaved_gpipe_duplicates",
     4,
     {0, 1, 0, 1},
     {"0F0 0F1 2F0 2F1 0F2 0F3 2F2 2F3 2B0 2B0 2B0 2B0 2B0 2B0 2B0 2B0",
      "1F0 1F1 3F0 3F1 1F2 1F3 3F2 3F3 3B0 3B0 3B0 3B0 3B0 3B0 3B0 3B0 3B0"},
     0,
     9,
     "2B0",
     "twice"},
    {"w_before_i", 1, {0}, {"0F0 0W0 0I0"}, 0, 1, "0W0", "needs 0I0"},
    {"missing_backward", 2, {0, 1}, {"0F0 0F1 0B0 0B1", "1F0 1B0 1F1"}, 1, -1, "1B1", "missing"},
    {"duplicate_forward", 2, {0, 1}, {"0F0 0F0 0B0 0B1", "1F0 1B0 1F1 1B1"}, 0, 1, "0F0", "twice"},
    {"stage_on_two_ranks",
     2,
     {0, 1},
     {"0F0 0F1 1B0 0B0 0B1", "1F0 1F1 1B1"},
     0,
     2,
     "1B0",
     "stage 1 is on rank 1"},
    {"b_and_i_both", 1, {0}, {"0F0 0I0 0B0 0W0"}, 0, 2, "0B0", "next to 0I0"},
    {"cross_rank_cycle",
     2,
     {0, 1},
     {"0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"},
     0,
     1,
     "0B0",
     "waits for 1B0 on rank 1 after 1F1 there, which waits for 0F1 on rank 0 after 0B0 there: a "
     "deadlock"},
    {"balanced_counts_wrong_microbatch",
     2,
     {0},
     {"0F0 0F1 0B0 0I0 0W0"},
     0,
     3,
     "0I0",
     "next to 0B0"},
    {"microbatch_out_of_range",
     2,
     {0},
     {"0F0 0F2 0B0 0B2"},
     0,
     1,
     "0F2",
     "microbatch 2 does not exist"},
    {"stage_index_gap", 1, {0, 1}, {"0F0 0B0", "2F0 2B0"}, 1, 0, "2F0", "stage 2 does not exist"},
    {"missing_weight_gradient", 1, {0}, {"0F0 0I0"}, 0, -1, "0W0", "missing"},
    {"duplicate_weight_gradient", 1, {0}, {"0F0 0I0 0W0 0W0"}, 0, 3, "0W0", "twice"},
    {"backward_before_forward", 1, {0, 1}, {"0B0 0F0", "1F0 1B0"}, 0, 0, "0B0", "needs 0F0"},
    {"pair_members_depend",
     1,
     {0},
     {"(0F0;0B0)"},
     0,
     0,
     "0F0",
     "is paired with 0B0, but one needs the other"},
    {"atomic_pair_cycle",
     2,
     {0, 1},
     {"0F0 (0F1;0B0) 0B1", "1F0 (1B0;1F1) 1B1"},
     0,
     1,
     "0F1",
     "is paired with 0B0 and waits for 1B0 on rank 1 paired with 1F1 there, which waits for 0F1 on "
     "rank 0 paired with 0B0 there: a deadlock"},
    // Schedules of our own making.
    {"pair_of_both_halves",
     1,
     {0, 1, 0},
     {"0F0 2F0 (2I0;2W0) 0B0", "1F0 1B0"},
     0,
     2,
     "2I0",
     "is paired with 2W0; a pair is one F and one B or I"},
    {"pair_of_one_microbatch",
     1,
     {0, 1, 0},
     {"(0F0;2B0) 2F0 0B0", "1F0 1B0"},
     0,
     0,
     "0F0",
     "is paired with 2B0, but one needs the other"},
    {"pair_of_two_forwards", 2, {0}, {"(0F0;0F1) 0B0 0B1"}, 0, 0, "0F0", "one F and one B or I"},
};

class RefusedSchedules : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedSchedules, AreNamedByRankPositionPassAndReason) {
    const Refusal& expected = GetParam();
    const Schedule schedule =
        schedule_from(expected.lists, expected.microbatches, expected.rank_of_stage);
    EXPECT_NE(brute_force_fault(schedule), "");
    const auto violation = find_violation(schedule);
    ASSERT_TRUE(violation.has_value());
    EXPECT_EQ(violation->rank, expected.rank);
    EXPECT_EQ(violation->index, expected.index);
    EXPECT_EQ(violation->pass, expected.pass);
    EXPECT_THAT(violation->reason, HasSubstr(expected.reason));
}

INSTANTIATE_TEST_SUITE_P(, RefusedSchedules, ::testing::ValuesIn(kRefusals),
                         [](const auto& info) { return info.param.id; });

// What the notation of lists cannot say.
TEST(Validate, RefusesPairsWithoutEnd) {
    const auto message = [](std::initializer_list<size_t> opening) {
        Schedule schedule = schedule_from({"0F0 0F1 0B0 0B1"}, 2, {0});
        for (const size_t at : opening) schedule.passes[0][at].with_next = true;
        const auto violation = find_violation(schedule);
        EXPECT_EQ(violation.has_value(), brute_force_fault(schedule) != "");
        return violation ? violation->message() : "accepted";
    };
    EXPECT_EQ(message({1}), "accepted");
    EXPECT_EQ(message({3}),
              "rank 0, position 3, 0B1 opens an overlapped pair, but no pass follows");
    EXPECT_EQ(message({1, 2}),
              "rank 0, position 1, 0F1 is paired with 0B0, which opens another pair");
}

TEST(Validate, AcceptsPairsThatWaitForEachOthersRanksInTurn) {
    for (const char* pair : {"(1F1;1B0)", "(1B0;1F1)"}) {
        const Schedule schedule =
            schedule_from({"0F0 0F1 0B0 0B1", std::string("1F0 ") + pair + " 1B1"}, 2, {0, 1});
        const auto violation = find_violation(schedule);
        EXPECT_FALSE(violation.has_value()) << violation->message();
        EXPECT_EQ(brute_force_fault(schedule), "");
    }
}

TEST(Validate, ThrowsOneLineThatNamesThePlace) {
    Schedule schedule = small();
    EXPECT_NO_THROW(validate(schedule));
    schedule.passes[1][3] = {Op::S, 0, 7};
    try {
        validate(schedule);
        FAIL() << "accepted";
    } catch (const ScheduleError& error) {
        EXPECT_STREQ(
            error.what(),
            "rank 1, position 3, S7 microbatch 7 does not exist; the last microbatch is 1");
        EXPECT_EQ(error.violation().rank, 1);
        EXPECT_EQ(error.exit_code(), ExitCode::usage);
    }
}

TEST(Validate, RefusesWrongSizesOfTheWhole) {
    const auto reason = [](auto change) {
        Schedule schedule = small();
        change(schedule);
        EXPECT_NE(brute_force_fault(schedule), "");
        const auto violation = find_violation(schedule);
        return violation ? violation->message() : "accepted";
    };
    EXPECT_EQ(reason([](Schedule& s) { s.ranks = 0; }), "schedule: ranks is 0; must be at least 1");
    EXPECT_EQ(reason([](Schedule& s) { s.stages = -1; }),
              "schedule: stages is -1; must be at least 1");
    EXPECT_EQ(reason([](Schedule& s) { s.microbatches = 0; }),
              "schedule: microbatches is 0; must be at least 1");
    EXPECT_EQ(reason([](Schedule& s) { s.passes.pop_back(); }),
              "schedule: 1 lists of passes for 2 ranks");
    EXPECT_EQ(reason([](Schedule& s) { s.rank_of_stage.push_back(0); }),
              "schedule: rank_of_stage has 3 entries for 2 stages");
    EXPECT_EQ(reason([](Schedule& s) { s.rank_of_stage[1] = 2; }),
              "schedule: stage 1 is on rank 2; ranks are 0 to 1");
    EXPECT_EQ(reason([](Schedule& s) { s.input.first_row.clear(); }),
              "schedule: input shard map: has 0 entries; 2 ranks need 3");
    EXPECT_EQ(reason([](Schedule& s) {
                  s.output.first_row = {1, 5, 10};
              }),
              "schedule: output shard map: starts at row 1, expected row 0");
    EXPECT_EQ(reason([](Schedule& s) {
                  s.output.first_row = {0, 5, 4};
              }),
              "schedule: output shard map: rank 1 ends at row 4, before its first row 5");
    EXPECT_EQ(reason([](Schedule& s) { s.barriers = static_cast<Barriers>(3); }),
              "schedule: barriers has an unknown value");
}

TEST(Validate, RefusesMisplacedVocabularyPasses) {
    const auto message = [](auto change) {
        Schedule schedule = small();
        change(schedule);
        EXPECT_NE(brute_force_fault(schedule), "");
        const auto violation = find_violation(schedule);
        return violation ? violation->message() : "accepted";
    };
    EXPECT_EQ(message([](Schedule& s) { s.output = ShardMap::whole(10, 2, 1); }),
              "rank 0, position 4, S0 rank 0 holds no rows of the output layer");
    EXPECT_EQ(message([](Schedule& s) { s.passes[0].erase(s.passes[0].begin() + 1); }),
              "rank 0, position 10, G1 needs E1, which does not come before it");
    EXPECT_EQ(message([](Schedule& s) { s.passes[1].pop_back(); }),
              "rank 1, G1 is missing; a rank with input rows needs one per microbatch");
    EXPECT_EQ(message([](Schedule& s) { std::swap(s.passes[0][4], s.passes[0][5]); }),
              "rank 0, position 4, T0 needs S0, which does not come before it");
    EXPECT_EQ(message([](Schedule& s) { s.passes[0][4].stage = 1; }),
              "rank 0, position 4, S0 has stage 1, but passes on a vocabulary shard have no stage");
    EXPECT_EQ(message([](Schedule& s) {
                  s.passes[0].push_back({Op::Update, 0, 0});
              }),
              "rank 0, position 12, Update is a pass of the step, which lowering adds; a schedule "
              "must not contain it");
    EXPECT_EQ(message([](Schedule& s) {
                  s.passes[0].push_back({static_cast<Op>(200), 0, 0});
              }),
              "rank 0, position 12: unknown kind of pass");
}

TEST(Validate, RefusesGradientsInAnEvaluation) {
    const auto message = [](const Pass& extra) {
        Schedule schedule = small();
        schedule.passes[0] = passes_from("E0 E1 F0 F1 S0 S1", {.stage = 0});
        schedule.passes[1] = passes_from("E0 E1 F0 S0 F1 S1", {.stage = 1});
        EXPECT_FALSE(find_violation(schedule).has_value());
        schedule.passes[0].push_back(extra);
        EXPECT_NE(brute_force_fault(schedule), "");
        const auto violation = find_violation(schedule);
        return violation ? violation->message() : "accepted";
    };
    EXPECT_EQ(message({Op::G, 0, 1}),
              "rank 0, position 6, G1 has no backward to take its gradient from");
    EXPECT_EQ(message({Op::W, 0, 1}),
              "rank 0, position 6, 0W1 needs 0I1, which does not come before it");
    // One T makes it training, of which nearly everything is missing.
    EXPECT_EQ(message({Op::T, 0, 1}), "rank 0, 0B0 is missing; stage 0 needs one per microbatch");
}

TEST(Validate, AcceptsARecomputationAnywhereBetweenForwardAndBackward) {
    for (const char* list :
         {"0F0 0R0 0F1 0B0 0B1", "0F0 0F1 0R1 0B0 0B1", "0F0 0R0 0F1 0R1 0I1 0I0 0W1 0W0"}) {
        const Schedule schedule = schedule_from({list}, 2, {0});
        const auto violation = find_violation(schedule);
        EXPECT_FALSE(violation.has_value()) << violation->message();
        EXPECT_EQ(brute_force_fault(schedule), "");
    }
}

TEST(Validate, RefusesARecomputationThatHelpsNobody) {
    const auto message = [](const std::vector<std::string>& lists, const std::vector<int>& ranks) {
        const Schedule schedule = schedule_from(lists, 1, ranks);
        EXPECT_NE(brute_force_fault(schedule), "");
        const auto violation = find_violation(schedule);
        return violation ? violation->message() : "accepted";
    };
    EXPECT_EQ(message({"0R0 0F0 0B0"}, {0}),
              "rank 0, position 0, 0R0 needs 0F0, which does not come before it");
    EXPECT_EQ(message({"0F0 0B0 0R0"}, {0}),
              "rank 0, position 2, 0R0 comes after 0B0, which needs what it recomputes");
    EXPECT_EQ(message({"0F0 0I0 0R0 0W0"}, {0}),
              "rank 0, position 2, 0R0 comes after 0I0, which needs what it recomputes");
    EXPECT_EQ(message({"0F0 0R0 0R0 0B0"}, {0}), "rank 0, position 2, 0R0 appears twice");
    EXPECT_EQ(message({"0F0 0R0"}, {0}),
              "rank 0, position 1, 0R0 has no backward that needs what it recomputes");
    EXPECT_EQ(message({"0F0 1R0 0B0", "1F0 1B0"}, {0, 1}),
              "rank 0, position 1, 1R0 stage 1 is on rank 1");
    EXPECT_EQ(message({"0F0 0R7 0B0"}, {0}),
              "rank 0, position 1, 0R7 microbatch 7 does not exist; the last microbatch is 0");
    Schedule paired = schedule_from({"0F0 0F1 0R0 0B0 0B1"}, 2, {0});
    paired.passes[0][1].with_next = true;
    EXPECT_NE(brute_force_fault(paired), "");
    EXPECT_EQ(find_violation(paired)->message(),
              "rank 0, position 1, 0F1 is paired with 0R0; a pair is one F and one B or I");
}

// With two barriers the last B needs T of every rank; the one-barrier order has T too late for
// that.
TEST(Validate, RefusesAnOrderThatTheBarriersDoNotAllow) {
    Schedule schedule = small();
    schedule.barriers = Barriers::two;
    const auto violation = find_violation(schedule);
    ASSERT_TRUE(violation.has_value());
    EXPECT_NE(brute_force_fault(schedule), "");
    EXPECT_EQ(violation->message(),
              "rank 0, position 7, 0B0 waits for 1B0 on rank 1, which waits for T0 on rank 1 after "
              "1B0 there: a deadlock");
}

TEST(Validate, AcceptsWhatLooksUnusual) {
    // A stage that mixes B with I and W, W out of order, descending backwards, fewer microbatches
    // than ranks, two stages on one rank (V).
    const Schedule schedules[] = {
        schedule_from({"0F0 0F1 0F2 0B0 0I1 0I2 0W2 0W1"}, 3, {0}),
        schedule_from({"0F0 0F1 0B1 0B0", "1F0 1F1 1B1 1B0"}, 2, {0, 1}),
        schedule_from({"0F0 0B0", "1F0 1B0", "2F0 2B0"}, 1, {0, 1, 2}),
        schedule_from({"0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0"}, 1, {0, 1, 1, 0}),
    };
    for (const Schedule& schedule : schedules) {
        const auto violation = find_violation(schedule);
        EXPECT_FALSE(violation.has_value()) << violation->message();
        EXPECT_EQ(brute_force_fault(schedule), "");
    }
}

TEST(Validate, NeedsNoMoreMemoryThanTheListsHold) {
    Schedule schedule = small();
    schedule.microbatches = std::numeric_limits<int>::max();
    const auto violation = find_violation(schedule);
    ASSERT_TRUE(violation.has_value());
    EXPECT_EQ(violation->message(), "rank 0, 0F2 is missing; stage 0 needs one per microbatch");
}

// Forwards are counted, not backwards, of which rank 0 has one fewer.
TEST(Validate, NamesTheFirstForwardThatIsMissingOfManyMore) {
    Schedule schedule = small();
    schedule.microbatches = std::numeric_limits<int>::max();
    const auto more = passes_from("F2", {.stage = 0});
    schedule.passes[0].insert(schedule.passes[0].end(), more.begin(), more.end());
    EXPECT_EQ(find_violation(schedule).value().message(),
              "rank 0, 0F3 is missing; stage 0 needs one per microbatch");
}

// --------------------------------------------------------------------------------------------------

/// Makes pairs of a forward and a backward that stand side by side, where that stays valid.
void join_pairs(Schedule& schedule, std::mt19937& random) {
    for (std::vector<Pass>& list : schedule.passes) {
        for (size_t i = 0; i + 1 < list.size(); ++i) {
            if (random() % 2 == 0 || (list[i].op == Op::F) == (list[i + 1].op == Op::F)) continue;
            list[i].with_next = true;
            if (brute_force_fault(schedule).empty()) {
                ++i;
            } else {
                list[i].with_next = false;
            }
        }
    }
}

/// Schedules to be spoilt: every generated kind in small, and random ones with any placement,
/// uneven and empty shards, halves of backwards.
std::vector<Schedule> valid_schedules(std::mt19937& random) {
    std::vector<Schedule> schedules;
    for (const char* family : {"1f1b", "gpipe", "dualpipe-v"}) {
        for (const VocabMode mode : kEveryMode) {
            for (int p = 1; p <= 3; ++p) {
                for (int m = 1; m <= 3; ++m) {
                    schedules.push_back(make_schedule(family, {.ranks = p,
                                                               .microbatches = m,
                                                               .vocab_mode = mode,
                                                               .vocab_size = 100,
                                                               .forward_only = m == 2 && p == 2}));
                }
            }
        }
    }
    const auto below = [&](int limit) { return static_cast<int>(random() % unsigned(limit)); };
    for (int i = 0; i < 200; ++i) {
        Schedule frame;
        frame.ranks = 1 + below(3);
        frame.stages = 1 + below(4);
        frame.microbatches = 1 + below(3);
        for (int stage = 0; stage < frame.stages; ++stage) {
            frame.rank_of_stage.push_back(below(frame.ranks));
        }
        for (ShardMap* map : {&frame.input, &frame.output}) {
            map->first_row.push_back(0);
            for (int rank = 0; rank < frame.ranks; ++rank) {
                map->first_row.push_back(map->first_row.back() + below(3));
            }
        }
        frame.barriers = static_cast<Barriers>(below(3));
        schedules.push_back(random_valid_schedule(frame, below(5) == 0, random));
        join_pairs(schedules.back(), random);
    }
    return schedules;
}

/// One random change; may by chance leave the schedule as it was, or valid.
std::string spoil(Schedule& schedule, std::mt19937& random) {
    const auto below = [&](size_t limit) { return random() % limit; };
    auto& list = schedule.passes[below(schedule.passes.size())];
    if (list.empty()) return "nothing";
    const size_t at = below(list.size());
    const auto somewhere = [&](const std::vector<Pass>& other) {
        return other.empty() ? 0 : static_cast<std::ptrdiff_t>(below(other.size() + 1));
    };
    switch (below(14)) {
        case 0:
            std::swap(list[at], list[below(list.size())]);
            return "swap two passes";
        case 1:
            if (at + 1 < list.size()) std::swap(list[at], list[at + 1]);
            return "swap neighbours";
        case 2:
            list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
            return "drop";
        case 3: {
            const Pass copy = list[at];
            list.insert(list.begin() + somewhere(list), copy);
            return "duplicate";
        }
        case 4: {
            const Pass pass = list[at];
            list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
            auto& other = schedule.passes[below(schedule.passes.size())];
            other.insert(other.begin() + somewhere(other), pass);
            return "move to a rank";
        }
        case 5:
            list[at].microbatch = static_cast<uint32_t>(below(4));
            return "change a microbatch";
        case 6:
            list[at].stage = static_cast<uint16_t>(below(4));
            return "change a stage";
        case 7:
            list[at].op = static_cast<Op>(below(kOpTraits.size()));
            return "change a letter";
        case 8:
            std::shuffle(list.begin(), list.end(), random);
            return "shuffle a rank";
        case 9:
            schedule.barriers = static_cast<Barriers>(below(3));
            return "change the barriers";
        case 10: {
            auto& map = below(2) == 0 ? schedule.input : schedule.output;
            map.first_row[below(map.first_row.size())] = static_cast<int64_t>(below(5));
            return "change a shard map";
        }
        case 11:
            list[at].with_next = !list[at].with_next;
            return "open or close a pair";
        case 12: {  // next to each other on one rank more often than the toss above finds them
            for (size_t i = at; i + 1 < list.size(); ++i) {
                if ((list[i].op == Op::F) == (list[i + 1].op == Op::F)) continue;
                list[i].with_next = true;
                return "pair a forward";
            }
            return "nothing";
        }
        default: {  // B into I, W: stays valid more often than not
            if (list[at].op != Op::B) return "nothing";
            const Pass whole = list[at];
            list[at].op = Op::I;
            list.insert(
                list.begin() + static_cast<std::ptrdiff_t>(at + 1 + below(list.size() - at)),
                {Op::W, whole.stage, whole.microbatch});
            return "split a backward";
        }
    }
}

TEST(ValidateAgainstBruteForce, AcceptsEveryScheduleMadeByRunningIt) {
    std::mt19937 random(20240607);
    for (const Schedule& schedule : valid_schedules(random)) {
        const auto violation = find_violation(schedule);
        ASSERT_FALSE(violation.has_value()) << violation->message();
        ASSERT_EQ(brute_force_fault(schedule), "");
    }
}

TEST(ValidateAgainstBruteForce, AgreesOnThousandsOfSpoiltSchedules) {
    std::mt19937 random(1);
    const std::vector<Schedule> originals = valid_schedules(random);
    int valid = 0;
    int invalid = 0;
    int with_pairs = 0;
    int because_of_pairs = 0;
    for (int round = 0; round < 20000; ++round) {
        Schedule schedule = originals[random() % originals.size()];
        std::string how = spoil(schedule, random);
        if (round % 4 == 0) how += ", " + spoil(schedule, random);
        const auto violation = find_violation(schedule);
        const std::string fault = brute_force_fault(schedule);
        std::string lists;
        for (const auto& list : schedule.passes) lists += "\n  " + text_of(list);
        ASSERT_EQ(violation.has_value(), !fault.empty())
            << "round " << round << ": " << how
            << "\nvalidator: " << (violation ? violation->message() : "valid")
            << "\nbrute force: " << fault << lists;
        if (violation) {  // the place that is named is there
            ASSERT_EQ(violation->message().find('\n'), std::string::npos);
            ASSERT_FALSE(violation->reason.empty());
            if (violation->index >= 0) {
                const auto& list = schedule.passes.at(static_cast<size_t>(violation->rank));
                ASSERT_EQ(to_string(list.at(static_cast<size_t>(violation->index))),
                          violation->pass);
            }
        }
        ++(violation ? invalid : valid);
        const bool pairs = lists.find('(') != std::string::npos;
        if (!violation && pairs) ++with_pairs;
        if (violation && violation->reason.find("pair") != std::string::npos) ++because_of_pairs;
    }
    // Both verdicts must have been put to the test, with pairs and without.
    EXPECT_GT(valid, 2000);
    EXPECT_GT(invalid, 10000);
    EXPECT_GT(with_pairs, 500);
    EXPECT_GT(because_of_pairs, 1000);
}

/// F, S, T, B of every microbatch in this order, in the places that its passes have.
void put_each_microbatch_in_order(std::vector<Pass>& list) {
    std::vector<Pass> sorted = list;
    std::sort(sorted.begin(), sorted.end(), [](const Pass& a, const Pass& b) {
        const std::string_view order = "FSTB";
        return order.find(traits(a.op).name) < order.find(traits(b.op).name);
    });
    for (size_t at = 0; at < list.size(); ++at) {
        const auto next = std::find_if(sorted.begin(), sorted.end(), [&](const Pass& pass) {
            return pass.microbatch == list[at].microbatch;
        });
        list[at] = *next;
        sorted.erase(next);
    }
}

TEST(ValidateAgainstBruteForce, AgreesOnRandomPermutations) {
    std::mt19937 random(2);
    int valid = 0;
    int deadlocks = 0;
    for (int round = 0; round < 20000; ++round) {
        // Few passes, so that some permutations are valid; the order within a rank is mostly right.
        Schedule schedule = schedule_from({"0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"}, 2, {0, 1});
        if (round % 2 == 0) {
            schedule.output = ShardMap::even(10, 2);
            for (auto& list : schedule.passes) {
                for (const uint32_t j : {0U, 1U}) {
                    list.push_back({Op::S, 0, j});
                    list.push_back({Op::T, 0, j});
                }
            }
            schedule.barriers = static_cast<Barriers>(random() % 3);
        }
        for (auto& list : schedule.passes) {
            std::shuffle(list.begin(), list.end(), random);
            if (random() % 4 != 0) put_each_microbatch_in_order(list);
        }
        const auto violation = find_violation(schedule);
        ASSERT_EQ(violation.has_value(), brute_force_fault(schedule) != "")
            << text_of(schedule.passes[0]) << "\n"
            << text_of(schedule.passes[1]);
        if (!violation) ++valid;
        if (violation && violation->reason.find("deadlock") != std::string::npos) ++deadlocks;
    }
    EXPECT_GT(valid, 100);
    EXPECT_GT(deadlocks, 1000);
}

}  // namespace
}  // namespace vocabpipe::testing
