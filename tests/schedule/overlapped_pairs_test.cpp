// SPDX-License-Identifier: Apache-2.0
// Pairs whose passes run at the same time (LowerOptions::overlap_pairs): their programs, and their
// simulated times against figures derived by hand. The places of their buffers are checked in
// memory_plan_test.cpp.
#include "tests/schedule/program_tools.hpp"
#include "vocabpipe/explain.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr LowerOptions kBeside{.overlap_pairs = true};

/// F0, (F1;B0), B1 on one rank, with the passes of the vocabulary around.
Schedule one_pair() {
    using enum Op;
    Schedule schedule = generated({"gpipe", VocabMode::none, false}, 1, 2);
    schedule.passes.front() = {{E, 0, 0}, {F, 0, 0},       {S, 0, 0}, {T, 0, 0},
                               {E, 0, 1}, {F, 0, 1, true}, {B, 0, 0}, {G, 0, 0},
                               {S, 0, 1}, {T, 0, 1},       {B, 0, 1}, {G, 0, 1}};
    return schedule;
}

using Times = std::pair<int64_t, int64_t>;

std::map<std::string, Times> times_of(const std::vector<Program>& programs,
                                      const Timeline& timeline) {
    std::map<std::string, Times> times;
    for (const Span& span : timeline.spans) {
        const Program& program = programs[span.rank];
        if (span.lane != Lane::compute) continue;
        times[program.name_of(program.actions[span.action])] = {span.begin_ns, span.end_ns};
    }
    return times;
}

struct Simulated {
    std::map<std::string, Times> times;
    TimelineSummary summary;
};

/// F takes 10, B 20.
Simulated simulated_pair(int64_t exchange_permille, const LowerOptions& options = kBeside) {
    const Schedule schedule = one_pair();
    TableCosts costs = TableCosts::uniform(1, 1, 10, 20, 0);
    costs.exchange_permille = exchange_permille;
    const std::vector<Program> programs = lower(schedule, sizes_for(schedule), costs, options);
    const Simulation simulation = simulate(programs, costs);
    return {times_of(programs, simulation.timeline), simulation.summary};
}

// With two fifths of exchange each pass computes for three fifths of its time, so two of them take
// 6 / 5 of it. F1 ends after 12. By then B0 has done 10, and does the other 10 alone.
TEST(OverlappedPairs, HideExchangesAsDerivedByHand) {
    const Simulated two_fifths = simulated_pair(400);
    EXPECT_EQ(two_fifths.times.at("0F0"), (Times{0, 10}));
    EXPECT_EQ(two_fifths.times.at("0F1"), (Times{10, 22}));
    EXPECT_EQ(two_fifths.times.at("0B0"), (Times{10, 32}));
    EXPECT_EQ(two_fifths.times.at("0B1"), (Times{32, 52}));
    EXPECT_EQ(two_fifths.summary.makespan_ns, 52);
    EXPECT_EQ(two_fifths.summary.ranks.front().busy_ns, 52);  // no moment counts twice
    // With a half, neither slows the other down.
    EXPECT_EQ(simulated_pair(500).times.at("0F1"), (Times{10, 20}));
    EXPECT_EQ(simulated_pair(500).times.at("0B0"), (Times{10, 30}));
    EXPECT_EQ(simulated_pair(500).summary.makespan_ns, 50);
}

TEST(OverlappedPairs, HaveTheSamePassTimes) {
    const Schedule schedule = one_pair();
    const PassCosts costs =
        PassCosts::of(TableCosts::uniform(1, 1, 10, 20, 0), sizes_for(schedule), schedule);
    const PassTimes times = time_passes(schedule, costs, 400);
    EXPECT_EQ((Times{times.begin[0][5], times.end[0][5]}), (Times{10, 22}));
    EXPECT_EQ((Times{times.begin[0][6], times.end[0][6]}), (Times{10, 32}));
    EXPECT_EQ(times.makespan, 52);
    EXPECT_EQ(times.busy[0], 52);
    EXPECT_EQ(time_passes(schedule, costs).makespan, 60);
}

// With a depth of 1, pairs of neighbors wait for one another: inputs of second passes come when the
// first ones have ended, or on the way.
TEST(OverlappedPairs, HaveTheSamePassTimesWhereSecondPassesComeLate) {
    for (const int depth : {1, 2, 3}) {
        for (const int64_t exchange : {0, 300, 400, 700, 1000}) {
            const Schedule schedule =
                make_schedule("1f1b", {.ranks = 4,
                                       .microbatches = 9,
                                       .vocab_size = 64,
                                       .rule = {.warm_up_depth = depth, .overlap_pairs = true}});
            TableCosts costs = TableCosts::uniform(4, 4, 1000, 2017, 0);
            for (size_t stage = 0; stage < 4; ++stage) {
                costs.stage_ns[stage][static_cast<size_t>(Op::F)] += 100 * stage;
            }
            costs.exchange_permille = exchange;
            const StepSizes sizes = sizes_for(schedule);
            EXPECT_EQ(
                time_passes(schedule, PassCosts::of(costs, sizes, schedule), exchange).makespan,
                simulate(lower(schedule, sizes, costs, {.overlap_pairs = exchange > 0}), costs)
                    .summary.makespan_ns)
                << depth << exchange;
        }
    }
}

TEST(OverlappedPairs, TakeTheSumOfBothPassesWhereNothingIsHidden) {
    EXPECT_EQ(simulated_pair(0).summary.makespan_ns, 60);
    EXPECT_EQ(simulated_pair(0).times.at("0F1"), (Times{10, 30}));
    for (const int64_t exchange : {0, 400}) {
        const Simulated after = simulated_pair(exchange, {});
        EXPECT_EQ(after.times.at("0F1"), (Times{10, 20}));
        EXPECT_EQ(after.times.at("0B0"), (Times{20, 40}));
        EXPECT_EQ(after.summary.makespan_ns, 60);
    }
}

TEST(OverlappedPairs, MakeNoStepLongerAndKeepPassesWhole) {
    for (const int p : {2, 4}) {
        for (const VocabMode mode : {VocabMode::none, VocabMode::redistributed}) {
            const Schedule schedule = generated({"dualpipe-v", mode, false}, p, 3 * p);
            int64_t shorter = INT64_MAX;
            for (const int64_t exchange : {0, 200, 400, 600}) {
                TableCosts costs = TableCosts::uniform(p, 2 * p, 1200, 2400, 300);
                costs.exchange_permille = exchange;
                const StepSizes sizes = sizes_for(schedule);
                const auto step = [&](const LowerOptions& options) {
                    return simulate(lower(schedule, sizes, costs, options), costs);
                };
                const int64_t beside = step(kBeside).summary.makespan_ns;
                EXPECT_LE(beside, shorter) << exchange;
                shorter = beside;
                if (exchange > 0) {
                    EXPECT_LT(beside, step({}).summary.makespan_ns);
                }
            }
        }
    }
}

// Rank 0 has the whole output layer and is never idle, so its passes alone explain the step.
TEST(OverlappedPairs, LieOnTheCriticalPathWithTheirOwnTime) {
    const Schedule schedule = generated({"dualpipe-v", VocabMode::none, false}, 4, 16);
    TableCosts costs = TableCosts::uniform(4, 8, 60, 120, 160);
    costs.exchange_permille = 400;
    const std::vector<Program> programs = lower(schedule, sizes_for(schedule), costs, kBeside);
    const Simulation simulation = simulate(programs, costs);
    EXPECT_EQ(simulation.summary.ranks.front().busy_ns, simulation.summary.makespan_ns);
    const CriticalPath path = critical_path(simulation.timeline, programs);
    for (const PathSegment& segment : path.segments) {
        EXPECT_EQ(segment.cause, Cause::compute) << segment.begin_ns;
    }
    EXPECT_EQ(path.total_ns, simulation.summary.makespan_ns);
}

TEST(OverlappedPairs, AreMarkedAndChangeNothingElse) {
    for (const Kind& kind : every_kind(true)) {
        const Schedule schedule = generated(kind, 3, 9);
        const auto programs = [&](const LowerOptions& options) {
            return lower(schedule, sizes_for(schedule), uneven_costs(schedule), options);
        };
        const std::vector<Program> after = programs({});
        const std::vector<Program> beside = programs(kBeside);
        bool any = false;
        for (size_t rank = 0; rank < beside.size(); ++rank) {
            const Program& program = beside[rank];
            int members = 0;
            for (const Action& action : program.actions) {
                if (action.what != Do::pass) continue;
                const size_t item = action.item;
                const bool first = program.passes[item].with_next;
                const bool second = item > 0 && program.passes[item - 1].with_next;
                EXPECT_EQ(action.pair_member, first ? 1 : second ? 2 : 0);
                members += action.pair_member > 0 ? 1 : 0;
            }
            any = any || members > 0;
            EXPECT_GE(program.live_peak_bytes, after[rank].live_peak_bytes);
        }
        const bool has_pairs =
            kind.family == "dualpipe-v" && !kind.forward_only &&
            (kind.mode == VocabMode::none || kind.mode == VocabMode::redistributed);
        EXPECT_EQ(any, has_pairs) << name_of(kind);
        EXPECT_EQ(beside.front().hash != after.front().hash, any) << name_of(kind);
    }
}

}  // namespace
}  // namespace vocabpipe::testing
