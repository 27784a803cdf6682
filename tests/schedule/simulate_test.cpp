// SPDX-License-Identifier: Apache-2.0
// Numbers of the references: schedules.md sections 3 and 4.2, schedule_oracles.json (`metrics` of
// the GPipe and 1F1B cases, `formula_tables`), vocabulary-parallelism.md sections 3.2 and 3.3.
#include "vocabpipe/simulate.hpp"

#include "tests/schedule/program_tools.hpp"
#include "tests/support/random_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace vocabpipe::testing {
namespace {

using ::testing::ElementsAreArray;

/// The oracles' cost model: forward, backward = I + W, one latency, everything else free.
TableCosts oracle_costs(int ranks, int64_t forward, int64_t backward, int64_t latency) {
    TableCosts costs = TableCosts::uniform(ranks, ranks, forward, backward, 0);
    costs.latency_ns = latency;
    return costs;
}

/// The oracles let a value travel the moment it is made, so receives are posted from the start.
constexpr LowerOptions kPostedFromTheStart{.receive_ahead = kAsSoonAsSent};

TimelineSummary run(const Schedule& schedule, const TableCosts& costs,
                    const LowerOptions& options = kPostedFromTheStart) {
    return simulate(lower(schedule, sizes_for(schedule), costs, options), costs).summary;
}

Schedule plain(const std::string& family, int p, int m) {
    return generated({family, VocabMode::none, false}, p, m);
}

struct Oracle {
    std::string family;
    int p, m;
    int64_t forward, input_gradient, weight_gradient, latency;
    int64_t makespan, largest_span;
    std::vector<int64_t> spans, idle;
};

void PrintTo(const Oracle& oracle, std::ostream* out) {
    *out << oracle.family << " p=" << oracle.p << " m=" << oracle.m << " F,I,W,c=" << oracle.forward
         << "," << oracle.input_gradient << "," << oracle.weight_gradient << "," << oracle.latency;
}

const std::vector<Oracle> kOracles{
    {"gpipe", 2, 4, 1, 1, 1, 0, 15, 15, {15, 12}, {3, 0}},
    {"gpipe", 2, 4, 2, 2, 2, 1, 32, 32, {32, 24}, {8, 0}},
    {"gpipe", 2, 4, 10, 12, 8, 1, 152, 152, {152, 120}, {32, 0}},
    {"gpipe", 4, 8, 1, 1, 1, 0, 33, 33, {33, 30, 27, 24}, {9, 6, 3, 0}},
    {"gpipe", 4, 8, 2, 2, 2, 1, 72, 72, {72, 64, 56, 48}, {24, 16, 8, 0}},
    {"gpipe", 4, 8, 10, 12, 8, 1, 336, 336, {336, 304, 272, 240}, {96, 64, 32, 0}},
    {"1f1b", 2, 4, 1, 1, 1, 0, 15, 15, {15, 12}, {3, 0}},
    {"1f1b", 2, 4, 2, 2, 2, 1, 34, 34, {34, 26}, {10, 2}},
    {"1f1b", 2, 4, 10, 12, 8, 1, 154, 154, {154, 122}, {34, 2}},
    {"1f1b", 4, 8, 1, 1, 1, 0, 33, 33, {33, 30, 27, 24}, {9, 6, 3, 0}},
    {"1f1b", 4, 8, 2, 2, 2, 1, 82, 82, {82, 74, 66, 58}, {34, 26, 18, 10}},
    {"1f1b", 4, 8, 10, 12, 8, 1, 346, 346, {346, 314, 282, 250}, {106, 74, 42, 10}},
    {"1f1b", 4, 4, 1, 1, 1, 0, 21, 21, {21, 18, 15, 12}, {9, 6, 3, 0}},
    {"1f1b", 4, 4, 2, 2, 2, 1, 52, 52, {52, 44, 36, 28}, {28, 20, 12, 4}},
    {"1f1b", 4, 4, 10, 12, 8, 1, 220, 220, {220, 188, 156, 124}, {100, 68, 36, 4}},
    {"1f1b", 4, 3, 1, 1, 1, 0, 18, 18, {18, 15, 12, 9}, {9, 6, 3, 0}},
    {"1f1b", 4, 3, 2, 2, 2, 1, 44, 44, {44, 36, 28, 20}, {26, 18, 10, 2}},
    {"1f1b", 4, 3, 10, 12, 8, 1, 188, 188, {188, 156, 124, 92}, {98, 66, 34, 2}},
    {"1f1b", 4, 2, 1, 1, 1, 0, 15, 15, {15, 12, 9, 6}, {9, 6, 3, 0}},
    {"1f1b", 4, 2, 2, 2, 2, 1, 36, 36, {36, 28, 20, 12}, {24, 16, 8, 0}},
    {"1f1b", 4, 2, 10, 12, 8, 1, 156, 156, {156, 124, 92, 60}, {96, 64, 32, 0}},
};

class SimulatedOracles : public ::testing::TestWithParam<Oracle> {};

TEST_P(SimulatedOracles, HaveTheMetricsOfTheReference) {
    const Oracle& o = GetParam();
    const TableCosts costs =
        oracle_costs(o.p, o.forward, o.input_gradient + o.weight_gradient, o.latency);
    std::vector<LowerOptions> all{kPostedFromTheStart};
    // One pass ahead hides the transfer as well, unless that pass is one of the oracles' free S and
    // T.
    if (o.family == "1f1b") all.emplace_back();
    for (const LowerOptions& options : all) {
        const TimelineSummary summary = run(plain(o.family, o.p, o.m), costs, options);
        EXPECT_EQ(summary.makespan_ns, o.makespan);
        EXPECT_EQ(summary.largest_span_ns, o.largest_span);
        std::vector<int64_t> spans;
        std::vector<int64_t> idle;
        for (const RankSummary& rank : summary.ranks) {
            spans.push_back(rank.span_ns);
            idle.push_back(rank.span_ns - rank.busy_ns);
        }
        EXPECT_THAT(spans, ElementsAreArray(o.spans));
        EXPECT_THAT(idle, ElementsAreArray(o.idle));
    }
}

INSTANTIATE_TEST_SUITE_P(, SimulatedOracles, ::testing::ValuesIn(kOracles), [](const auto& info) {
    const Oracle& o = info.param;
    return (o.family == "1f1b" ? "one_f_one_b" : o.family) + "_p" + std::to_string(o.p) + "_m" +
           std::to_string(o.m) + "_f" + std::to_string(o.forward);
});

// The two sides of the same list, longer and shorter warm-up: schedules.md 4.2, eager1f1b_*.
TEST(Simulator, HasTheMetricsOfEagerOneFOneB) {
    struct Case {
        int p, m;
        int64_t forward, backward, latency;
        std::vector<int64_t> spans;
    };
    for (const Case& c :
         {Case{2, 4, 1, 2, 0, {15, 12}}, Case{2, 4, 2, 4, 1, {32, 24}},
          Case{2, 4, 10, 20, 1, {152, 120}}, Case{4, 8, 1, 2, 0, {33, 30, 27, 24}},
          Case{4, 8, 2, 4, 1, {72, 64, 56, 48}}, Case{4, 8, 10, 20, 1, {336, 304, 272, 240}}}) {
        Schedule schedule = plain("1f1b", c.p, c.m);
        for (int rank = 0; rank < c.p; ++rank) {
            std::vector<Pass>& list = schedule.passes[static_cast<size_t>(rank)];
            list.clear();
            const auto emit = [&](Op op, int j) {
                const auto stage = traits(op).has_stage ? rank : 0;
                list.push_back({op, static_cast<uint16_t>(stage), static_cast<uint32_t>(j)});
            };
            int next = 0;
            const auto forward = [&] {
                if (next == c.m) return;
                if (rank == 0) emit(Op::E, next);
                emit(Op::F, next);
                if (rank == c.p - 1) emit(Op::S, next), emit(Op::T, next);
                ++next;
            };
            for (int i = 0; i < std::min(c.m, 2 * (c.p - rank) - 1); ++i) forward();
            for (int j = 0; j < c.m; ++j) {
                emit(Op::B, j);
                if (rank == 0) emit(Op::G, j);
                forward();
            }
        }
        const TimelineSummary summary =
            run(schedule, oracle_costs(c.p, c.forward, c.backward, c.latency));
        for (size_t rank = 0; rank < c.spans.size(); ++rank) {
            EXPECT_EQ(summary.ranks[rank].span_ns, c.spans[rank])
                << "p=" << c.p << " F=" << c.forward << " rank " << rank;
        }
        EXPECT_EQ(summary.makespan_ns, c.spans[0]);
    }
}

// (m+p-1)(F+B); idle of rank r inside its span (p-1-r)(F+B); bubble (p-1)(F+B) of the makespan.
TEST(Simulator, GivesTheClosedFormsOfOneFOneBAndGPipe) {
    for (const char* family : {"1f1b", "gpipe"}) {
        for (int p = 1; p <= 8; ++p) {
            for (int m = 1; m <= 3 * p; ++m) {
                for (const auto& [f, b] :
                     {std::pair<int64_t, int64_t>{1, 2}, {100, 197}, {7, 7}, {5, 31}}) {
                    SCOPED_TRACE(std::string(family) + " p=" + std::to_string(p) +
                                 " m=" + std::to_string(m) + " f=" + std::to_string(f));
                    const TimelineSummary summary =
                        run(plain(family, p, m), oracle_costs(p, f, b, 0), {});
                    const int64_t work = m * (f + b);
                    ASSERT_EQ(summary.makespan_ns, (m + p - 1) * (f + b));
                    ASSERT_EQ(summary.largest_span_ns, (m + p - 1) * (f + b));
                    for (int rank = 0; rank < p; ++rank) {
                        const RankSummary& of_rank = summary.ranks[static_cast<size_t>(rank)];
                        ASSERT_EQ(of_rank.busy_ns, work);
                        ASSERT_EQ(of_rank.span_ns, work + (p - 1 - rank) * (f + b));
                        ASSERT_NEAR(of_rank.bubble, (p - 1.0) / (m + p - 1.0), 1e-12);
                    }
                    ASSERT_NEAR(summary.bubble, (p - 1.0) / (m + p - 1.0), 1e-12);
                }
            }
        }
    }
}

// 1F1B: 2(m+p-2-ceil((m-1)/p)) c for any c and m >= p; GPipe: fill and drain, 2(p-1) c.
TEST(Simulator, GivesTheLatencyTermsOfOneFOneBAndGPipe) {
    for (int p = 1; p <= 6; ++p) {
        for (int m = p; m <= 4 * p; ++m) {
            for (const int64_t c : {1, 4, 10, 500}) {
                SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m) +
                             " c=" + std::to_string(c));
                const int64_t without = (m + p - 1) * 30;
                const TableCosts costs = oracle_costs(p, 10, 20, c);
                const int64_t hops = p == 1 ? 0 : 2 * (m + p - 2 - (m - 1 + p - 1) / p);
                ASSERT_EQ(run(plain("1f1b", p, m), costs).makespan_ns, without + hops * c);
                ASSERT_EQ(run(plain("gpipe", p, m), costs).makespan_ns, without + 2 * (p - 1) * c);
            }
        }
    }
    // The number that the reference prints: p=4, m=8, costs 10, 12, 8.
    EXPECT_EQ(run(plain("1f1b", 4, 8), oracle_costs(4, 10, 20, 1)).makespan_ns, 330 + 16);
}

/// Time per microbatch once the pipeline is full, in hundredths of a percent over f + b.
double loss_in_percent(const ScheduleOptions& options, const TableCosts& costs, int64_t interval) {
    const auto makespan = [&](int m) {
        ScheduleOptions with_m = options;
        with_m.microbatches = m;
        return run(make_schedule("1f1b", with_m), costs, {}).makespan_ns;
    };
    const int p = options.ranks;
    const int first = 6 * p;
    const int second = 12 * p;
    const auto time = static_cast<double>(makespan(second) - makespan(first));
    return 100 * (time / static_cast<double>((second - first) * interval) - 1);
}

/// `unit`: T and S together, charged at its end.
double loss_built_for(int p, VocabMode mode, double true_ratio, double built_ratio, int64_t unit) {
    const int64_t f = 1000;
    const auto b = static_cast<int64_t>(true_ratio * 1000 + 0.5);
    const auto built = static_cast<int64_t>(built_ratio * 1000 + 0.5);
    TableCosts costs = oracle_costs(p, f, b, 0);
    for (TableCosts::OpCosts& of_rank : costs.rank_ns) {
        of_rank[static_cast<size_t>(Op::S)] = unit;
    }
    return loss_in_percent({.ranks = p,
                            .microbatches = 1,
                            .vocab_mode = mode,
                            .vocab_size = 1000,
                            .costs = PassCosts::uniform(f, built, 0)},
                           costs, f + b + unit);
}

TEST(SlotRule, LosesNothingWhenBuiltForTheTrueRatio) {
    for (const VocabMode mode : {VocabMode::one_barrier, VocabMode::two_barriers}) {
        for (int p = 2; p <= 8; ++p) {
            for (const double ratio : {1.0, 1.25, 1.5, 1.75, 1.85, 1.9, 1.95, 2.0, 2.5, 3.0, 5.0}) {
                EXPECT_NEAR(loss_built_for(p, mode, ratio, ratio, 0), 0, 1e-9)
                    << to_string(mode) << " p=" << p << " b/f=" << ratio;
            }
        }
    }
}

// Table 3.3: steady-state loss with identical devices and no communication cost. Its numbers are
// those of an order that takes 3f where it could take f + b, next to units of 0.118 f.
TEST(SlotRule, LosesWhatTheTableSaysWhenBuiltForTwo) {
    const std::pair<double, double> table[] = {
        {1.00, 47.2}, {1.25, 31.7}, {1.50, 19.1}, {1.75, 8.7}, {1.85, 5.1}, {1.90, 3.3},
        {1.95, 1.6},  {2.00, 0.0},  {2.10, 0.0},  {2.50, 0.0}, {3.00, 0.0}};
    for (const VocabMode mode : {VocabMode::one_barrier, VocabMode::two_barriers}) {
        for (const int p : {4, 8}) {
            for (const auto& [ratio, loss] : table) {
                EXPECT_NEAR(loss_built_for(p, mode, ratio, 2.0, 118), loss, 0.06)
                    << to_string(mode) << " p=" << p << " b/f=" << ratio;
                const double free = ratio < 2 ? 100 * (3 / (1 + ratio) - 1) : 0;
                EXPECT_NEAR(loss_built_for(p, mode, ratio, 2.0, 0), free, 1e-9)
                    << to_string(mode) << " p=" << p << " b/f=" << ratio;
            }
        }
    }
}

// 3.2: fill and drain take 6.94 to 7.2 times f + b for p = 8; plain 1F1B 7.00 times.
TEST(SlotRule, FillsAndDrainsAsFastAsOneFOneB) {
    const int64_t f = 1000;
    const int64_t b = 2000;
    const int m = 48;
    for (const VocabMode mode :
         {VocabMode::none, VocabMode::one_barrier, VocabMode::two_barriers}) {
        const Schedule schedule = generated({"1f1b", mode, false}, 8, m);
        const int64_t makespan = run(schedule, oracle_costs(8, f, b, 0), {}).makespan_ns;
        const double ramp =
            static_cast<double>(makespan - m * (f + b)) / static_cast<double>(f + b);
        if (mode == VocabMode::none) {
            EXPECT_DOUBLE_EQ(ramp, 7.0);
        } else {
            EXPECT_GE(ramp, 6.9) << to_string(mode);
            EXPECT_LE(ramp, 7.25) << to_string(mode);
        }
    }
}

TEST(Simulator, IsExactAboutWhatEachKindOfPassCosts) {
    std::mt19937 random(4);
    for (int i = 0; i < 100; ++i) {
        const Schedule schedule = random_schedule(random, {});
        const TableCosts costs = uneven_costs(schedule);
        const std::vector<Program> programs = lower(schedule, sizes_for(schedule), costs);
        const Simulation simulation = simulate(programs, costs);
        std::vector<int64_t> busy(programs.size(), 0);
        for (size_t rank = 0; rank < programs.size(); ++rank) {
            for (const Pass& pass : schedule.passes[rank]) {
                busy[rank] += costs.pass_ns(static_cast<int>(rank), pass);
            }
        }
        for (const Span& span : simulation.timeline.spans) {
            if (span.lane == Lane::local) busy[span.rank] += span.end_ns - span.begin_ns;
        }
        int64_t largest = 0;
        for (size_t rank = 0; rank < programs.size(); ++rank) {
            const RankSummary& of_rank = simulation.summary.ranks[rank];
            EXPECT_EQ(of_rank.busy_ns, busy[rank]);
            EXPECT_LE(of_rank.span_ns, simulation.summary.makespan_ns);
            largest = std::max(largest, of_rank.span_ns);
        }
        EXPECT_EQ(simulation.summary.largest_span_ns, largest);
    }
}

/// Every action begins after everything it needs has ended, at the same time as its partners, and
/// not later than the last of these.
void expect_spans_follow_the_rules(const std::vector<Program>& programs, const Timeline& timeline) {
    std::vector<std::vector<const Span*>> of(programs.size());
    for (size_t rank = 0; rank < programs.size(); ++rank) {
        of[rank].resize(programs[rank].actions.size(), nullptr);
    }
    for (const Span& span : timeline.spans) {
        ASSERT_EQ(of[span.rank][span.action], nullptr) << "ran twice";
        of[span.rank][span.action] = &span;
        ASSERT_GE(span.end_ns, span.begin_ns);
    }
    std::map<uint32_t, std::vector<const Span*>> meetings;
    for (const Program& program : programs) {
        const auto& spans = of[static_cast<size_t>(program.rank)];
        std::vector<int64_t> ready(program.actions.size(), 0);
        for (const Edge& edge : program.edges) {
            ASSERT_GE(spans[edge.after]->begin_ns, spans[edge.before]->end_ns);
            ready[edge.after] = std::max(ready[edge.after], spans[edge.before]->end_ns);
        }
        const Span* previous = nullptr;
        for (size_t i = 0; i < program.actions.size(); ++i) {
            if (has_participants(program.actions[i])) {
                meetings[program.actions[i].order].push_back(spans[i]);
            }
            if (program.actions[i].lane != Lane::compute) continue;
            if (previous != nullptr) {
                ASSERT_GE(spans[i]->begin_ns, previous->end_ns);
                ready[i] = std::max(ready[i], previous->end_ns);
            }
            previous = spans[i];
            ASSERT_EQ(spans[i]->begin_ns, ready[i]) << "idle for nothing";
        }
    }
    for (const auto& [order, spans] : meetings) {
        for (const Span* span : spans) {
            ASSERT_EQ(span->begin_ns, spans.front()->begin_ns);
            ASSERT_EQ(span->end_ns, spans.front()->end_ns);
        }
    }
}

TEST(Simulator, StartsEverythingWhenItCanAndNothingBefore) {
    std::mt19937 random(8);
    for (int i = 0; i < 200; ++i) {
        SCOPED_TRACE("case " + std::to_string(i));
        const Schedule schedule = random_schedule(random, {.most_ranks = 5});
        const TableCosts costs = uneven_costs(schedule);
        const std::vector<Program> programs =
            lower(schedule, random_sizes(schedule, random), costs);
        ASSERT_NO_FATAL_FAILURE(
            expect_spans_follow_the_rules(programs, simulate(programs, costs).timeline));
    }
}

TEST(Simulator, NamesTheActionThatWasWaitedFor) {
    std::mt19937 random(9);
    for (int i = 0; i < 50; ++i) {
        const Schedule schedule = random_schedule(random, {});
        const TableCosts costs = uneven_costs(schedule);
        const std::vector<Program> programs = lower(schedule, sizes_for(schedule), costs);
        const Simulation simulation = simulate(programs, costs);
        std::map<std::pair<int, uint32_t>, const Span*> of;
        for (const Span& span : simulation.timeline.spans) of[{span.rank, span.action}] = &span;
        for (const Span& span : simulation.timeline.spans) {
            if (span.lane != Lane::compute || span.begin_ns == 0) continue;
            ASSERT_NE(span.waited_for, UINT32_MAX);
            ASSERT_EQ((of[{span.rank, span.waited_for}]->end_ns), span.begin_ns);
        }
    }
}

TEST(Simulator, SimulatesTheSameProgramToTheSameTimeline) {
    for (const Kind& kind : every_kind(true)) {
        const Schedule schedule = generated(kind, 5, 11);
        const TableCosts costs = uneven_costs(schedule);
        const std::vector<Program> programs = lowered(schedule);
        const Timeline once = simulate(programs, costs).timeline;
        const Timeline again = simulate(programs, costs).timeline;
        ASSERT_EQ(once.spans.size(), again.spans.size());
        for (size_t i = 0; i < once.spans.size(); ++i) {
            ASSERT_EQ(once.spans[i].rank, again.spans[i].rank);
            ASSERT_EQ(once.spans[i].action, again.spans[i].action);
            ASSERT_EQ(once.spans[i].begin_ns, again.spans[i].begin_ns);
            ASSERT_EQ(once.spans[i].end_ns, again.spans[i].end_ns);
            ASSERT_EQ(once.spans[i].waited_for, again.spans[i].waited_for);
        }
    }
}

/// Buffers alive over time, by sweeping over every moment at which something begins or ends.
uint64_t peak_by_sweep(const Program& program, const Timeline& timeline) {
    std::vector<int64_t> born(program.buffers.size(), INT64_MAX);
    std::vector<int64_t> dead(program.buffers.size(), INT64_MIN);
    std::vector<int64_t> moments;
    for (const Span& span : timeline.spans) {
        if (span.rank != program.rank) continue;
        moments.push_back(span.begin_ns);
        for (const uint32_t buffer : program.operands_of(program.actions[span.action])) {
            if (buffer == kNoBuffer) continue;
            born[buffer] = std::min(born[buffer], span.begin_ns);
            dead[buffer] = std::max(dead[buffer], span.end_ns);
        }
    }
    uint64_t peak = 0;
    for (const int64_t moment : moments) {
        uint64_t live = 0;
        for (size_t b = 0; b < born.size(); ++b) {
            if (program.buffers[b].space != Buffer::Space::arena) continue;
            if (born[b] <= moment && moment < dead[b]) live += program.buffers[b].bytes;
        }
        peak = std::max(peak, live);
    }
    return peak;
}

TEST(Simulator, ReportsThePeakOfBytesAlive) {
    for (const Kind& kind : every_kind(false)) {
        const Schedule schedule = generated(kind, 4, 9);
        const TableCosts costs = uneven_costs(schedule);
        const std::vector<Program> programs = lowered(schedule);
        const Simulation simulation = simulate(programs, costs);
        for (size_t rank = 0; rank < programs.size(); ++rank) {
            EXPECT_EQ(simulation.peak_bytes[rank],
                      peak_by_sweep(programs[rank], simulation.timeline))
                << name_of(kind) << " rank " << rank;
        }
    }
}

TEST(Timeline, SummaryOfNothingIsZero) {
    const TimelineSummary summary = summarize({}, std::vector<Program>(2));
    EXPECT_EQ(summary.makespan_ns, 0);
    EXPECT_EQ(summary.ranks.size(), 2U);
    EXPECT_EQ(summary.ranks[1].busy_ns, 0);
}

TEST(Timeline, SummaryTellsMakespanFromTheLargestSpan) {
    // Two ranks, shifted: rank 0 works 0-10, rank 1 works 25-45, a message in between.
    Timeline timeline;
    const auto span = [](int rank, Lane lane, int64_t begin, int64_t end, int64_t cpu) {
        return Span{.action = 0,
                    .rank = static_cast<uint16_t>(rank),
                    .lane = lane,
                    .begin_ns = begin,
                    .end_ns = end,
                    .cpu_ns = cpu};
    };
    timeline.spans = {span(0, Lane::compute, 100, 110, 10), span(0, Lane::forward, 110, 125, 0),
                      span(1, Lane::compute, 125, 145, 15), span(1, Lane::local, 145, 150, 5)};
    const TimelineSummary summary = summarize(timeline, std::vector<Program>(2));
    EXPECT_EQ(summary.makespan_ns, 50);
    EXPECT_EQ(summary.largest_span_ns, 20);
    EXPECT_EQ(summary.ranks[0].busy_ns, 10);
    EXPECT_EQ(summary.ranks[1].busy_ns, 20);  // CPU time, not the clock's
    EXPECT_DOUBLE_EQ(summary.ranks[0].bubble, 0.8);
    EXPECT_DOUBLE_EQ(summary.ranks[1].bubble, 0.6);
    EXPECT_DOUBLE_EQ(summary.bubble, 0.7);
}

}  // namespace
}  // namespace vocabpipe::testing
