// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/with_recomputation.hpp"

#include "tests/schedule/program_tools.hpp"
#include "tests/schedules/notation.hpp"
#include "tests/support/brute_force_checker.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/simulate.hpp"
#include "vocabpipe/user_schedule.hpp"
#include "vocabpipe/validate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace vocabpipe::testing {
namespace {

// --- where R goes --------------------------------------------------------------------------------

TEST(WithRecomputation, PutsAnRRightBeforeEveryBackward) {
    const Schedule plain = generated({"1f1b", VocabMode::none, false}, 2, 2);
    const Schedule schedule = with_recomputation(plain);
    EXPECT_EQ(text_of(plain.passes[1]), "1F0 S0 T0 1B0 1F1 S1 T1 1B1");
    EXPECT_EQ(text_of(schedule.passes[0]), "E0 0F0 E1 0F1 0R0 0B0 G0 0R1 0B1 G1");
    EXPECT_EQ(text_of(schedule.passes[1]), "1F0 S0 T0 1R0 1B0 1F1 S1 T1 1R1 1B1");
    EXPECT_FALSE(has_recomputation(plain));
    EXPECT_TRUE(has_recomputation(schedule));
}

TEST(WithRecomputation, PutsItBeforeTheInputHalfAndKeepsWhatIsThere) {
    const Schedule schedule = with_recomputation(user_schedule({{{Op::F, 0, 0},
                                                                 {Op::F, 0, 1},
                                                                 {Op::R, 0, 1},
                                                                 {Op::I, 0, 0},
                                                                 {Op::B, 0, 1},
                                                                 {Op::W, 0, 0}}}));
    EXPECT_EQ(text_of(schedule.passes[0]), "0F0 0F1 0R1 0R0 0I0 0B1 0W0");
    EXPECT_EQ(text_of(with_recomputation(schedule).passes[0]), text_of(schedule.passes[0]));
}

TEST(WithRecomputation, PutsItBeforeAPairNotBetweenItsMembers) {
    const Schedule schedule = with_recomputation(user_schedule({{{Op::F, 0, 0},
                                                                 {Op::F, 0, 1, true},
                                                                 {Op::B, 0, 0},
                                                                 {Op::B, 0, 1, true},
                                                                 {Op::F, 0, 2},
                                                                 {Op::B, 0, 2}}}));
    EXPECT_EQ(text_of(schedule.passes[0]), "0F0 0R0 (0F1;0B0) 0R1 (0B1;0F2) 0R2 0B2");
    EXPECT_FALSE(find_violation(schedule).has_value());
}

TEST(WithRecomputation, LeavesAnEvaluationAsItIs) {
    const Schedule plain = generated({"1f1b", VocabMode::one_barrier, true}, 3, 4);
    EXPECT_EQ(with_recomputation(plain).passes, plain.passes);
}

TEST(WithRecomputation, MakesBackwardsLongerForGenerators) {
    PassCosts costs = PassCosts::uniform(10, 20, 4);
    costs.stage[0][static_cast<size_t>(Op::R)] = 3;
    const PassCosts longer = with_recomputation(costs);
    EXPECT_EQ(longer(0, {Op::B}), 23);
    EXPECT_EQ(longer(0, {Op::I}), 13);
    EXPECT_EQ(longer(0, {Op::W}), 10);
    EXPECT_EQ(longer(0, {Op::F}), 10);
}

TEST(RecomputationCosts, AreThoseOfTheForwardUnlessTheTableSaysOtherwise) {
    TableCosts costs = TableCosts::uniform(1, 2, 1000, 2000, 500);
    EXPECT_EQ(costs.pass_ns(0, {Op::R, 1, 0}), 1000);
    costs.stage_ns[1][static_cast<size_t>(Op::R)] = 70;
    EXPECT_EQ(costs.pass_ns(0, {Op::R, 1, 0}), 70);
    EXPECT_EQ(PassCosts::uniform(12, 24, 4)(0, {Op::R, 0, 0}), 12);
    EXPECT_EQ(PassCosts::uniform(12, 24, 4).mean(Op::R), 12);
}

// --- buffers -------------------------------------------------------------------------------------

constexpr int64_t kMiB = int64_t{1} << 20;

/// Boundaries and vocabulary of a few bytes, 1 MiB kept and 4 MiB recomputed per microbatch.
StepSizes sizes_to_recompute(const Schedule& schedule) {
    StepSizes sizes;
    sizes.tokens = sizes.hidden = 2;
    sizes.stages.assign(static_cast<size_t>(schedule.stages), {.saved = kMiB,
                                                               .recomputed = 4 * kMiB,
                                                               .for_weight = 512,
                                                               .forward_workspace = 256,
                                                               .backward_workspace = 1024,
                                                               .input_gradient_workspace = 128,
                                                               .weight_gradient_workspace = 64});
    sizes.shards.resize(static_cast<size_t>(schedule.ranks));
    return sizes;
}

/// Every stage's buffers of one rank: who uses them, from first to last, and for what.
void expect_lives_from_recomputation_to_backward(const Program& program) {
    const auto users = users_of_buffers(program);
    std::set<std::pair<int, uint32_t>> again;
    std::map<std::pair<int, uint32_t>, bool> split;
    for (const Pass& pass : program.passes) {
        if (pass.op == Op::R) again.emplace(pass.stage, pass.microbatch);
        if (pass.op == Op::W) split[{pass.stage, pass.microbatch}] = true;
    }
    const auto life = [&](uint32_t buffer) {
        std::string text;
        for (const uint32_t user : users[buffer]) {
            text += traits(pass_of(program, program.actions[user]).op).name;
        }
        return text;
    };
    for (const Action& action : program.actions) {
        if (action.what != Do::pass) continue;
        const Pass& pass = pass_of(program, action);
        if (pass.op != Op::F) continue;
        SCOPED_TRACE(to_string(pass));
        const std::pair<int, uint32_t> key{pass.stage, pass.microbatch};
        const std::string backward = split[key] ? "IW" : "B";
        const bool has_r = again.contains(key);
        const auto operands = program.operands_of(action);
        ASSERT_EQ(operands.size(), 5U);
        EXPECT_EQ(life(operands[2]), (has_r ? "FR" : "F") + backward);
        EXPECT_EQ(program.buffers[operands[2]].bytes, static_cast<uint64_t>(kMiB));
        const Buffer& made = program.buffers[operands[3]];
        EXPECT_EQ(made.bytes, static_cast<uint64_t>(4 * kMiB));
        EXPECT_EQ(life(operands[3]), has_r ? "F" : "F" + backward);
        EXPECT_EQ(made.purpose, has_r ? Purpose::workspace : Purpose::activation);
        for (const Action& other : program.actions) {
            if (other.what != Do::pass) continue;
            const Pass& r = pass_of(program, other);
            if (r.op != Op::R || r.stage != pass.stage || r.microbatch != pass.microbatch) continue;
            const auto of_r = program.operands_of(other);
            ASSERT_EQ(of_r.size(), 4U);
            EXPECT_EQ(of_r[0], operands[0]);
            EXPECT_EQ(of_r[1], operands[2]);
            EXPECT_EQ(life(of_r[2]), "R" + backward);
            EXPECT_EQ(program.buffers[of_r[2]].purpose, Purpose::activation);
            EXPECT_EQ(program.buffers[of_r[2]].bytes, static_cast<uint64_t>(4 * kMiB));
            EXPECT_EQ(life(of_r[3]), "R");
            EXPECT_EQ(program.buffers[of_r[3]].bytes, 256U);
        }
    }
}

class EveryRecomputedSchedule : public ::testing::TestWithParam<Kind> {};

TEST_P(EveryRecomputedSchedule, IsValidProvenAndKeepsWhatItRecomputesNoLongerThanNeeded) {
    for (const int p : {1, 2, 4}) {
        for (const int m : {1, p + 1, 2 * p}) {
            SCOPED_TRACE("p=" + std::to_string(p) + " m=" + std::to_string(m));
            const Schedule schedule = with_recomputation(generated(GetParam(), p, m));
            ASSERT_EQ(brute_force_fault(schedule), "");
            const TableCosts costs = uneven_costs(schedule);
            const std::vector<Program> programs =
                lower(schedule, sizes_to_recompute(schedule), costs);
            const auto stuck = find_deadlock(programs);
            ASSERT_FALSE(stuck.has_value()) << *stuck;
            ASSERT_GT(simulate(programs, costs).summary.step_ns, 0);
            for (const Program& program : programs) {
                ASSERT_NO_FATAL_FAILURE(expect_lives_from_recomputation_to_backward(program));
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(, EveryRecomputedSchedule, ::testing::ValuesIn(every_kind(false)),
                         [](const auto& info) { return name_of(info.param); });

TEST(RecomputationBuffers, FollowTheRulesWhereverAnRandomScheduleRecomputes) {
    std::mt19937 random(11);
    int seen = 0;
    for (int i = 0; i < 150; ++i) {
        const Schedule schedule =
            random_schedule(random, {.most_ranks = 4, .most_stages = 6, .one_in_forward_only = 0});
        if (!has_recomputation(schedule)) continue;
        ++seen;
        for (const Program& program :
             lower(schedule, sizes_to_recompute(schedule), uneven_costs(schedule))) {
            ASSERT_NO_FATAL_FAILURE(expect_lives_from_recomputation_to_backward(program))
                << describe(schedule);
        }
    }
    EXPECT_GT(seen, 20);
}

// --- memory and time -----------------------------------------------------------------------------

// Rank s of 1F1B keeps p - s microbatches. Without R each has 5 MiB; with it 1 MiB each, and 4 more
// for the one in R and B, or in F.
TEST(SimulatedMemory, FallsByWhatOneMicrobatchAtATimeRecomputes) {
    const Schedule plain = generated({"1f1b", VocabMode::none, false}, 4, 8, 4);
    const StepSizes sizes = sizes_to_recompute(plain);
    const TableCosts costs = TableCosts::uniform(4, 4, 1000, 2000, 10);
    const auto peaks = [&](const Schedule& schedule) {
        std::vector<uint64_t> mib;
        for (const uint64_t bytes : simulate(lower(schedule, sizes, costs), costs).peak_bytes) {
            mib.push_back(bytes / kMiB);
        }
        return mib;
    };
    EXPECT_EQ(peaks(plain), (std::vector<uint64_t>{20, 15, 10, 5}));
    EXPECT_EQ(peaks(with_recomputation(plain)), (std::vector<uint64_t>{8, 7, 6, 5}));
}

// Rank 0 recomputes while rank 1 is at work: 1F 1000-2000, 1R 2000-2500, 1B 2500-4500, 0B
// 4500-6500.
TEST(SimulatedTime, RecomputesWhileTheGradientIsOnItsWay) {
    const Schedule schedule = with_recomputation(generated({"1f1b", VocabMode::none, false}, 2, 1));
    TableCosts costs = TableCosts::uniform(2, 2, 1000, 2000, 0);
    for (auto& stage : costs.stage_ns) stage[static_cast<size_t>(Op::R)] = 500;
    const std::vector<Program> programs = lower(schedule, sizes_to_recompute(schedule), costs);
    const Simulation simulation = simulate(programs, costs);
    EXPECT_EQ(simulation.summary.makespan_ns, 6500);
    for (const Span& span : simulation.timeline.spans) {
        const Program& program = programs[span.rank];
        if (program.name_of(program.actions[span.action]) != "0R0") continue;
        EXPECT_EQ(span.begin_ns, 1000);
        EXPECT_EQ(span.end_ns, 1500);
    }
    const PassCosts simple = PassCosts::of(costs, sizes_to_recompute(schedule), schedule);
    EXPECT_EQ(time_passes(schedule, simple).makespan, 6500);
}

}  // namespace
}  // namespace vocabpipe::testing
