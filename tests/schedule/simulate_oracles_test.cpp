// SPDX-License-Identifier: Apache-2.0
// The simulator on lowered programs against the figures of an independent program
// (tests/schedules/data/schedule_oracles.json) and against the pass-level clock.
#include "vocabpipe/insert_vocabulary.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/simulate.hpp"

#include "tests/schedule/program_tools.hpp"
#include "tests/schedules/oracles.hpp"
#include "tests/support/random_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace vocabpipe::testing {
namespace {

TableCosts table_of(const nlohmann::json& cost, int64_t latency, const Schedule& schedule) {
    TableCosts costs;
    costs.stage_ns.assign(static_cast<size_t>(schedule.stages),
                          costs_of(cost, latency).stage.front());
    costs.rank_ns.resize(static_cast<size_t>(schedule.ranks));
    costs.latency_ns = latency;
    return costs;
}

TimelineSummary summary_of(const Schedule& schedule, const TableCosts& costs) {
    const LowerOptions options{.receive_ahead = kAsSoonAsSent};
    return simulate(lower(schedule, sizes_for(schedule), costs, options), costs).summary;
}

/// Number of figures compared.
int expect_figures(const nlohmann::json& oracle) {
    SCOPED_TRACE(oracle.at("id").get<std::string>());
    const Schedule schedule = insert_vocabulary(schedule_of(oracle), {.mode = VocabMode::none});
    // Their figures are of pairs that are one node, which no program has (oracle_times_test.cpp).
    for (const std::vector<Pass>& list : schedule.passes) {
        if (std::ranges::any_of(list, &Pass::with_next)) return 0;
    }
    int compared = 0;
    for (const auto& figures : oracle.at("metrics")) {
        SCOPED_TRACE(figures.dump());
        const TimelineSummary summary = summary_of(
            schedule, table_of(figures.at("cost"), figures.at("latency").get<int64_t>(), schedule));
        std::vector<int64_t> spans;
        std::vector<int64_t> idle;
        for (const RankSummary& rank : summary.ranks) {
            spans.push_back(rank.span_ns);
            idle.push_back(rank.span_ns - rank.busy_ns);
        }
        EXPECT_EQ(summary.makespan_ns, figures.at("makespan").get<int64_t>());
        EXPECT_EQ(summary.largest_span_ns, figures.at("max_span").get<int64_t>());
        EXPECT_EQ(spans, figures.at("span_per_rank").get<std::vector<int64_t>>());
        EXPECT_EQ(idle, figures.at("idle_in_span_per_rank").get<std::vector<int64_t>>());
        ++compared;
    }
    return compared;
}

TEST(SimulatedOracleLists, HaveTheirFiguresInEveryPlacement) {
    int figures = 0;
    std::map<std::string, int> of_schedule;
    for (const auto& oracle : oracles().at("cases")) {
        const int compared = expect_figures(oracle);
        figures += compared;
        of_schedule[oracle.at("schedule").get<std::string>()] += compared;
    }
    for (const auto& oracle : oracles().at("closed_form_zb_k")) figures += expect_figures(oracle);
    EXPECT_EQ(figures, 151);
    for (const char* schedule : {"GPipe", "1F1B", "Eager1F1B", "Interleaved1F1B", "LoopedBFS",
                                 "ZB-H1", "ZB-V (heuristic)", "V-Half", "V-Min"}) {
        EXPECT_GT(of_schedule[schedule], 0) << schedule;
    }
}

/// Costs at random, everything between passes free.
TableCosts free_communication(const Schedule& schedule, std::mt19937& random) {
    TableCosts costs = TableCosts::uniform(schedule.ranks, schedule.stages, 1, 1, 1);
    for (auto* table : {&costs.stage_ns, &costs.rank_ns}) {
        for (TableCosts::OpCosts& row : *table) {
            for (int64_t& cost : row) cost = static_cast<int64_t>(random() % 9);
        }
    }
    return costs;
}

TEST(SimulatedPrograms, TakeWhatThePassLevelClockSaysIfCommunicationIsFree) {
    std::mt19937 random(21);
    for (int i = 0; i < 1000; ++i) {
        const Schedule schedule = random_schedule(random, {.most_ranks = 5});
        SCOPED_TRACE(describe(schedule));
        const TableCosts costs = free_communication(schedule, random);
        const StepSizes sizes = sizes_for(schedule);
        const std::vector<Program> programs =
            lower(schedule, sizes, costs, {.receive_ahead = kAsSoonAsSent});
        const Simulation simulation = simulate(programs, costs);
        const PassTimes times = time_passes(schedule, PassCosts::of(costs, sizes, schedule));
        ASSERT_EQ(simulation.summary.makespan_ns, times.makespan);
        ASSERT_EQ(simulation.summary.largest_span_ns, times.largest_span);
        for (const Span& span : simulation.timeline.spans) {
            if (span.lane != Lane::compute) continue;
            const uint32_t position = programs[span.rank].actions[span.action].item;
            ASSERT_EQ(span.begin_ns, times.begin[span.rank][position]);
            ASSERT_EQ(span.end_ns, times.end[span.rank][position]);
        }
    }
}

// With collectives short against passes and every layer sharded, the clock with PassCosts::of says
// what the lowered program takes.
TEST(SimulatedPrograms, TakeWhatPassCostsPredictForShardedVocabularies) {
    for (const Kind& kind : every_kind(false)) {
        if (kind.mode == VocabMode::none || kind.mode == VocabMode::redistributed) continue;
        for (const int p : {2, 4, 5}) {  // 24 tokens: blocks of 5 ranks are uneven
            SCOPED_TRACE(name_of(kind) + " p=" + std::to_string(p));
            const Schedule schedule = generated(kind, p, 12);
            TableCosts costs = uneven_costs(schedule);
            for (TableCosts::OpCosts& row : costs.stage_ns) {
                for (int64_t& cost : row) cost *= 10;
            }
            const StepSizes sizes = sizes_for(schedule);
            const TimelineSummary summary = summary_of(schedule, costs);
            const PassTimes times = time_passes(schedule, PassCosts::of(costs, sizes, schedule));
            EXPECT_EQ(summary.makespan_ns, times.makespan);
            EXPECT_EQ(summary.largest_span_ns, times.largest_span);
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
