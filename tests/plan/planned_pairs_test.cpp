// SPDX-License-Identifier: Apache-2.0
// Candidates with overlapped pairs (PlanOptions::overlap_pairs): their steps by hand and as
// simulate() has them, their memory, and bounds.
#include "src/plan/candidates.hpp"
#include "src/plan/evaluate.hpp"
#include "src/plan/search.hpp"
#include "src/plan/step_bound.hpp"
#include "src/plan/unit_costs.hpp"
#include "tests/plan/plan_cases.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/simulate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

using enum Op;
using ::testing::HasSubstr;
using ::testing::Not;

TableCosts::OpCosts known_costs(std::initializer_list<std::pair<Op, int64_t>> known) {
    TableCosts::OpCosts costs{};
    for (const auto& [op, ns] : known) costs[static_cast<size_t>(op)] = ns;
    return costs;
}

/// Pairs of tensor ranks on links that take no time. F takes 10 us, B 20 us; the first rank is
/// slower by `uneven`.
struct PairedStep {
    PlanOptions options = small_plan();
    Candidate candidate;

    explicit PairedStep(const std::string& schedule, int ranks = 2, int chunks = 1,
                        int64_t uneven = 0) {
        options.device = instant_device();
        options.device.message_efficiency.value = 1;
        options.gpus = 2 * ranks;
        options.receive_ahead = 1;
        options.overlap_pairs = true;
        options.pass_times = PlannedPassTimes{.name = "known"};
        for (int stage = 0; stage < ranks * chunks; ++stage) {
            const int64_t more = stage == 0 ? uneven : 0;
            options.pass_times->stage_ns.push_back(known_costs(
                {{F, 10'000 + more}, {B, 20'000 + more}, {I, 11'000 + more}, {W, 9'000}}));
        }
        const int64_t pass = uneven > 0 ? 700 : 0;
        options.pass_times->rank_ns.assign(
            static_cast<size_t>(ranks),
            known_costs({{E, pass}, {G, pass}, {S, 2 * pass}, {T, 3 * pass}}));
        candidate = {.schedule = schedule,
                     .chunks = chunks,
                     .overlap_pairs = true,
                     .layers_per_stage = std::vector<int>(static_cast<size_t>(ranks * chunks), 1),
                     .mesh = {.pipeline = ranks, .tensor = 2},
                     .microbatches = 4};
    }
    StepModel model() const {
        return step_model(options, unit_costs(ModelOnDevice(options), candidate), candidate);
    }
    PlanRow row(Evaluation evaluation) const {
        const Evaluator evaluator(options);
        return evaluator.row(candidate, evaluator.order(candidate), evaluation);
    }
    int64_t step_ns(Evaluation evaluation = Evaluation::simulation) const {
        return row(evaluation).step_ns;
    }
};

// The second rank has F1 from 10 to 20 and then B1;F2, B2;F3, B3;F4 and B4, and the first one B4 at
// the end: 20 + 3 pairs + 20 + 20. A pair takes its B where half of both is exchanges. With 30 %,
// F ends after 14, B has done 10 then and does the other 10 alone. Else B and F follow each other.
TEST(PlannedPairs, HaveTheStepDerivedByHand) {
    PairedStep step("1f1b");
    for (const auto& [percent, ns] :
         {std::pair{50, 120'000}, {100, 120'000}, {30, 132'000}, {0, 150'000}}) {
        step.options.trainer.exchange_percent = percent;
        for (const Evaluation how : {Evaluation::simulation, Evaluation::pass_times}) {
            const PlanRow row = step.row(how);
            EXPECT_EQ(row.step_ns, ns) << percent << to_string(how);
            EXPECT_EQ(row.candidate.overlap_pairs, true);
        }
    }
    // Ranks that share nothing wait for nobody.
    step.options.trainer.exchange_percent = 50;
    step.candidate.mesh.tensor = 1;
    step.options.gpus = 2;
    EXPECT_EQ(step.step_ns(), 150'000);
}

// The costs of vocabpipe simulate, and the order that make_schedule() gives train_gpt.
TEST(PlannedPairs, HaveTheStepThatSimulateHas) {
    std::set<int64_t> steps;
    for (const auto& [name, chunks] :
         {std::pair{"1f1b", 1}, {"eager-1f1b", 1}, {"interleaved", 2}, {"dualpipe-v", 2}}) {
        for (const VocabMode mode :
             {VocabMode::none, VocabMode::interlaced, VocabMode::one_barrier}) {
            for (const int percent : {0, 30}) {
                PairedStep step(name, 4, chunks, 500);
                step.candidate.vocab_mode = mode;
                step.candidate.microbatches = 12;
                step.candidate.overlap_pairs = chunks == 1 || mode == VocabMode::none;
                step.options.trainer.exchange_percent = percent;
                const StepModel model = step.model();
                TableCosts costs;
                costs.stage_ns = model.costs.stage_ns;
                costs.rank_ns = model.costs.rank_ns;
                costs.slices = 2;
                costs.exchange_permille = 10 * percent;
                ScheduleOptions generate = model.generate;
                generate.rule = {.chunks = chunks,
                                 .broadcast_margin = generate.rule.broadcast_margin,
                                 .overlap_pairs = step.candidate.overlap_pairs};
                const Lowered programs =
                    lower_world(make_schedule(name, generate), model.sizes, costs,
                                {.receive_ahead = 1, .overlap_pairs = percent > 0});
                const int64_t ns = simulate(programs.all(), costs).summary.step_ns;
                EXPECT_EQ(step.step_ns(), ns) << name << to_string(mode) << percent;
                steps.insert(ns);
            }
        }
    }
    EXPECT_GT(steps.size(), 12U);
}

// Where nothing waits for messages, pass times are those of the simulation to the nanosecond.
TEST(PlannedPairs, HaveTheSamePassTimes) {
    for (const auto& [name, chunks] :
         {std::pair{"1f1b", 1}, {"interleaved", 2}, {"dualpipe-v", 2}}) {
        for (const int percent : {0, 13, 30, 50, 77, 100}) {
            for (const int microbatches : {1, 2, 5, 12}) {
                PairedStep step(name, 4, chunks, 777);
                step.candidate.microbatches = microbatches;
                // Programs send in an order for passes one after the other: what B makes before
                // what F does, which ends first.
                const double queues = name == std::string("interleaved") ? 0.06 : 0;
                if (queues > 0) step.options.receive_ahead = 0;
                step.options.trainer.exchange_percent = percent;
                const PlanRow timed = step.row(Evaluation::pass_times);
                const PlanRow simulated = step.row(Evaluation::simulation);
                EXPECT_NEAR(
                    static_cast<double>(simulated.step_ns) / static_cast<double>(timed.step_ns), 1,
                    queues)
                    << name << percent << microbatches;
                EXPECT_NEAR(timed.bubble, simulated.bubble, 0.001 + queues) << name << percent;
            }
        }
    }
}

TEST(PlannedPairs, KeepMoreMicrobatchesAndBothPasses) {
    PairedStep step("1f1b", 4);
    step.candidate.microbatches = 12;
    const int64_t saved = step.model().sizes.stages[1].saved;
    const auto activations = [&](bool pairs, int percent, Evaluation how) {
        step.candidate.overlap_pairs = pairs;
        step.options.trainer.exchange_percent = percent;
        return step.row(how).ranks[1].activations;
    };
    for (const Evaluation how : {Evaluation::simulation, Evaluation::pass_times}) {
        const int64_t plain = activations(false, 0, how);
        const int64_t after = activations(true, 0, how), beside = activations(true, 30, how);
        // The second of four ranks: three microbatches, five with a depth of 2, and the pair's.
        EXPECT_GE(after - plain, 2 * saved) << to_string(how);
        EXPECT_LT(after - plain, 3 * saved) << to_string(how);
        EXPECT_GE(beside - after, saved) << to_string(how);
        EXPECT_LT(beside - after, 2 * saved) << to_string(how);
    }
}

/// All families on four ranks of a pipeline with two that share stages.
PlanOptions tensor_plan() {
    PlanOptions options = small_plan();
    options.gpus = 8;
    options.tensor = {2};
    options.overlap_pairs = true;
    return options;
}

TEST(PlannedPairs, AreOfTheFamiliesThatCanHaveThem) {
    const PlanOptions options = tensor_plan();
    std::set<std::string> with;
    for (const Candidate& candidate : list_candidates(options).possible) {
        const bool sharded_mode = sharded(candidate.vocab_mode);
        const bool can =
            generator(candidate.schedule).overlap_pairs && !(candidate.chunks > 1 && sharded_mode);
        EXPECT_EQ(candidate.overlap_pairs, can) << to_string(candidate);
        EXPECT_EQ(to_string(candidate).find(" pairs") != std::string::npos, can);
        const std::string command = train_command(options, candidate);
        EXPECT_EQ(command.find(" --overlap-pairs ") != std::string::npos, can) << command;
        if (can) with.insert(candidate.schedule);
    }
    EXPECT_EQ(with, (std::set<std::string>{"1f1b", "dualpipe-v", "eager-1f1b", "interleaved"}));
}

std::string refusal_of(const PlanOptions& options) {
    try {
        static_cast<void>(make_plan(options));
    } catch (const UsageError& error) {
        return error.what();
    }
    return "none";
}

TEST(PlannedPairs, AreRefusedWhereNoCandidateHasThem) {
    PlanOptions options = tensor_plan();
    options.schedules = {"gpipe", "zb-v"};
    const std::string none =
        "--overlap-pairs: no candidate can have pairs; only 1f1b, eager-1f1b, interleaved, "
        "dualpipe-v can, those with several stages per rank with vocabulary modes none and "
        "redistributed: change --schedules or --vocab-modes";
    EXPECT_EQ(refusal_of(options), none);
    options.schedules = {"interleaved"};
    options.vocab_modes = {VocabMode::one_barrier};
    EXPECT_EQ(refusal_of(options), none);
    options.vocab_modes.push_back(VocabMode::none);
    EXPECT_EQ(refusal_of(options), "none");
}

TEST(PlannedPairs, RefuseSharesThatNothingUses) {
    PlanOptions options = tensor_plan();
    options.schedules = {"1f1b"};
    options.trainer.exchange_percent = 30;
    EXPECT_EQ(refusal_of(options), "none");
    options.tensor = {1};
    const std::string unused =
        "--exchange-percent 30: no candidate has pairs and ranks that share a stage: set "
        "--overlap-pairs, and --tensor-model-parallel-size, --context-parallel-size or "
        "--expert-model-parallel-size above 1";
    EXPECT_EQ(refusal_of(options), unused);
    options.tensor = {2};
    options.overlap_pairs = false;
    EXPECT_EQ(refusal_of(options), unused);
    // These have pairs without the flag, where vocabulary passes do not come between.
    options.schedules = {"dualpipe-v"};
    EXPECT_EQ(refusal_of(options), "none");
    options.vocab_modes = {VocabMode::two_barriers};
    EXPECT_EQ(refusal_of(options), unused);
    options.vocab_modes.clear();
    options.trainer.exchange_percent = 101;
    EXPECT_EQ(refusal_of(options), "--exchange-percent 101: must be from 0 to 100");
    options.trainer.exchange_percent = 30;
    options.trainer.blocking_exchanges = true;
    EXPECT_EQ(refusal_of(options),
              "--exchange-percent 30: with --blocking-exchanges, pairs run one after the other; "
              "leave out one of both");
}

// The nearest row has no pairs, and its remedies are planned without.
TEST(PlannedPairs, LeaveRemediesToRowsWithoutThem) {
    PlanOptions options = tensor_plan();
    options.schedules = {"1f1b", "v-min"};
    options.trainer.exchange_percent = 30;
    options.memory_gib = 0.5;
    const Plan plan = make_plan(options);
    ASSERT_FALSE(plan.rows.front().fits());
    ASSERT_FALSE(plan.rows.front().candidate.overlap_pairs);
    EXPECT_FALSE(find_remedies(plan).empty());
}

TEST(PlannedPairs, AreSaidInReports) {
    PlanOptions options = tensor_plan();
    options.schedules = {"1f1b"};
    options.vocab_modes = {VocabMode::one_barrier};
    options.trainer.exchange_percent = 30;
    const Plan plan = make_plan(options);
    EXPECT_THAT(plan_text(plan, 5), HasSubstr(" 1f1b pairs "));
    EXPECT_THAT(to_string(options.trainer), HasSubstr(", pairs hide exchanges of 30 %"));
    const std::string json = plan_json(plan);
    EXPECT_THAT(json, HasSubstr("\"overlap_pairs\": true"));
    EXPECT_THAT(json, HasSubstr("\"exchange_percent\": 30"));
    options.overlap_pairs = false;
    options.trainer.exchange_percent = 0;
    const Plan plain = make_plan(options);
    EXPECT_THAT(plan_text(plain, 5), Not(HasSubstr("pairs")));
    EXPECT_THAT(plan_json(plain), HasSubstr("\"overlap_pairs\": false"));
    // What the pairs hide is worth more than the barriers of their order cost.
    EXPECT_LT(plan.rows.front().step_ns, plain.rows.front().step_ns);
}

TEST(PlannedPairs, HaveBoundsThatNoneOfThemIsBelow) {
    PlanOptions options = tensor_plan();
    options.schedules = {"1f1b", "interleaved", "dualpipe-v"};
    options.micro_batch_sizes = {1, 4};
    options.recompute = {Recompute::none, Recompute::selective};
    double slack = 0;
    size_t rows = 0;
    for (const int percent : {0, 20, 45, 100}) {
        options.trainer.exchange_percent = percent;
        for (const double gib : {80.0, 2.0}) {
            options.memory_gib = gib;
            const std::vector<Candidate> candidates = list_candidates(options).possible;
            const Evaluated all = evaluate_all(options, candidates, Evaluation::pass_times);
            ASSERT_GE(all.rows.size(), 60U);
            for (const PlanRow& row : all.rows) {
                const StepBound bound = bound_step(
                    step_model(options, unit_costs(ModelOnDevice(options), row.candidate),
                               row.candidate, false),
                    row.candidate, options.gpu_memory_bytes());
                const std::string name = to_string(row.candidate) + std::to_string(percent);
                ASSERT_LE(bound.step_ns, row.step_ns) << name;
                ASSERT_LE(bound.memory_bytes, row.worst.total()) << name;
                if (row.fits()) {
                    ASSERT_LE(bound.fitting_step_ns, row.step_ns) << name;
                }
                slack += static_cast<double>(row.step_ns) / static_cast<double>(bound.step_ns) - 1;
            }
            rows += all.rows.size();
        }
    }
    EXPECT_LT(slack / static_cast<double>(rows), 0.3);
}

}  // namespace
}  // namespace vocabpipe::testing
