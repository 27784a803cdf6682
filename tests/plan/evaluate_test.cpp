// SPDX-License-Identifier: Apache-2.0
// Steps whose every part is known: times of passes as measured, links that move a byte per
// nanosecond.
#include "src/plan/evaluate.hpp"

#include "src/plan/step_model.hpp"
#include "tests/plan/plan_cases.hpp"
#include "vocabpipe/parameter_count.hpp"
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace vocabpipe::testing {
namespace {

using enum Op;

constexpr int64_t kLatency = 7;
constexpr int64_t kHidden = 16;
constexpr int64_t kRows = 1000;                       // of the vocabulary
constexpr int64_t kHop = kLatency + 8 * kHidden * 2;  // a microbatch of 8 tokens in bf16
constexpr int64_t kReport = 64;                       // bytes of one rank
constexpr int64_t kTable = kRows * kHidden * 4;       // bytes of a gradient of the vocabulary

struct OfOp {
    Op op;
    int64_t ns;
};
TableCosts::OpCosts costs_of(std::vector<OfOp> known) {
    TableCosts::OpCosts costs{};
    for (const auto& [op, ns] : known) costs[static_cast<size_t>(op)] = ns;
    return costs;
}

/// A layer and a replica per GPU unless told otherwise. Passes take the times below.
struct Step {
    PlanOptions options;
    Candidate candidate;

    explicit Step(int ranks, VocabMode mode = VocabMode::none) {
        options.model = {.name = "tiny",
                         .config = {.num_layers = ranks,
                                    .hidden_size = kHidden,
                                    .ffn_hidden_size = 64,
                                    .num_attention_heads = 4,
                                    .max_position_embeddings = 8,
                                    .vocab_size = kRows,
                                    .tied = false}};
        options.device = load_device("a100");
        DeviceSpec& device = options.device;
        for (Figure* rate :
             {&device.link_gb_per_s, &device.link_efficiency, &device.message_efficiency,
              &device.memory_gb_per_s, &device.elementwise_efficiency}) {
            rate->value = 1;
        }
        device.link_latency_us.value = kLatency * 1e-3;
        device.gpus_per_node.value = 64;
        options.gpus = ranks;
        options.seq_length = 8;
        options.global_batch_size = 1;
        options.pass_times = PlannedPassTimes{.name = "known"};
        for (int rank = 0; rank < ranks; ++rank) {
            const int64_t more = rank * 1000;  // all ranks differ
            options.pass_times->rank_of_stage.push_back(rank);
            options.pass_times->stage_ns.push_back(costs_of(
                {{F, 10'000 + more}, {B, 20'000 + more}, {I, 12'000 + more}, {W, 8'000 + more}}));
            options.pass_times->rank_ns.push_back(costs_of({{E, 100},
                                                            {G, 200},
                                                            {S, 300},
                                                            {T, 400},
                                                            {Reduce, 50'000},
                                                            {Report, 600},
                                                            {Update, 7'000}}));
        }
        candidate = {.schedule = "1f1b",
                     .vocab_mode = mode,
                     .layers_per_stage = std::vector<int>(static_cast<size_t>(ranks), 1),
                     .mesh = {.pipeline = ranks},
                     .microbatches = 1};
    }
    int64_t& of_rank(int rank, Op op) {
        return options.pass_times->rank_ns[static_cast<size_t>(rank)][static_cast<size_t>(op)];
    }
    int64_t& of_stage(int stage, Op op) {
        return options.pass_times->stage_ns[static_cast<size_t>(stage)][static_cast<size_t>(op)];
    }
    PlanRow row(Evaluation evaluation = Evaluation::pass_times) const {
        const Evaluator evaluator(options);
        return evaluator.row(candidate, evaluator.order(candidate), evaluation);
    }
    int64_t ns() const { return row().step_ns; }
    /// With rank 0 and 1 running these lists.
    int64_t ns_of(std::vector<std::vector<Pass>> passes) const {
        const Evaluator evaluator(options);
        Schedule order = evaluator.order(candidate);
        order.passes = std::move(passes);
        return evaluator.row(candidate, order, Evaluation::pass_times).step_ns;
    }
};

// E F, F S T B of the last, B G of the first; then the end of the step.
constexpr int64_t kPassesOfTwo =
    100 + 10'000 + kHop + 11'000 + 300 + 400 + 21'000 + kHop + 20'000 + 200;
constexpr int64_t kReportsOfTwo = kLatency + kReport;

TEST(TimedStep, OneRankRunsItsPassesAndThenTheEndOfTheStep) {
    EXPECT_EQ(Step(1).ns(), 100 + 10'000 + 300 + 400 + 20'000 + 200 + 600 + 7'000);
}

TEST(TimedStep, RanksExchangeReportsBetweenReportAndUpdate) {
    EXPECT_EQ(Step(2).ns(), kPassesOfTwo + 600 + kReportsOfTwo + 7'000);
    // Each of four ranks gets three parts, in two rounds. Times of F and B grow by 1000 a rank.
    const int64_t passes = 100 + 4 * 30'000 + 2 * (1 + 2 + 3) * 1000 + 6 * kHop + 300 + 400 + 200;
    EXPECT_EQ(Step(4).ns(), passes + 600 + 2 * kLatency + 3 * kReport + 7'000);
}

TEST(TimedStep, TheSlowestReportAndTheSlowestUpdateCount) {
    for (const int rank : {0, 1}) {
        Step step(2);
        step.of_rank(rank, Report) = 1'000'000;
        const int64_t passes = rank == 0 ? kPassesOfTwo : kPassesOfTwo - kHop - 20'200;
        EXPECT_EQ(step.ns(), passes + 1'000'000 + kReportsOfTwo + 7'000) << rank;
    }
    for (const int rank : {0, 1}) {
        Step step(2);
        step.of_rank(rank, Update) = 1'000'000;
        EXPECT_EQ(step.ns(), kPassesOfTwo + 600 + kReportsOfTwo + 1'000'000) << rank;
    }
}

TEST(TimedStep, ARankWithoutPassesReportsFromTheBegin) {
    Step step(2);
    step.of_rank(1, Report) = 123'456;
    const Evaluator evaluator(step.options);
    Schedule order = evaluator.order(step.candidate);
    order.passes = {{}, {}};
    EXPECT_EQ(evaluator.row(step.candidate, order, Evaluation::pass_times).step_ns,
              123'456 + kReportsOfTwo + 7'000);
}

// Both gradients of a table of V h, one after the other.
TEST(TimedStep, ATiedWeightOfTwoRanksSendsBothGradientsBeforeReduce) {
    Step step(2);
    step.options.model.config.tied = true;
    const int64_t both = 2 * (kLatency + kTable);
    EXPECT_EQ(step.ns(), kPassesOfTwo + both + 50'000 + 600 + kReportsOfTwo + 7'000);
    step.of_rank(1, Reduce) = 80'000;
    EXPECT_EQ(step.ns(), kPassesOfTwo + both + 80'000 + 600 + kReportsOfTwo + 7'000);
}

TEST(TimedStep, TiedGradientsLeaveWhenTheLaterOfTheTwoRanksIsDone) {
    Step step(2);
    step.options.model.config.tied = true;
    step.of_stage(1, W) = 500'000;
    // The last rank's W goes on when the first rank is done.
    const int64_t ns =
        step.ns_of({{{E}, {F}, {I}, {W}, {G}}, {{F, 1, 0}, {S}, {T}, {I, 1, 0}, {W, 1, 0}}});
    const int64_t last = 100 + 10'000 + kHop + 11'000 + 300 + 400 + 13'000 + 500'000;
    EXPECT_EQ(ns, last + 2 * (kLatency + kTable) + 50'000 + 600 + kReportsOfTwo + 7'000);
}

TEST(TimedStep, RanksBetweenThoseOfATiedWeightDoNotReduce) {
    Step step(4);
    const int64_t untied = step.ns();
    step.options.model.config.tied = true;
    step.of_rank(1, Reduce) = step.of_rank(2, Reduce) = 1'000'000'000;
    EXPECT_EQ(step.ns() - untied, 2 * (kLatency + kTable) + 50'000);
}

TEST(TimedStep, ATiedWeightOnOneRankIsReducedWhereItIs) {
    for (Step step : {Step(1), Step(2, VocabMode::one_barrier), Step(4, VocabMode::two_barriers)}) {
        const PlanRow untied = step.row();
        step.options.model.config.tied = true;
        const PlanRow row = step.row();
        EXPECT_EQ(row.step_ns - untied.step_ns, 50'000);
        EXPECT_EQ(row.ranks[0].activations, untied.ranks[0].activations);
        EXPECT_EQ(row.ranks[0].communication, untied.ranks[0].communication);
    }
}

TEST(TimedStep, ATensorRankSendsItsShareOfATiedWeight) {
    Step step(2);
    step.candidate.mesh.tensor = 2;
    step.options.model.config.vocab_size = 1001;
    const auto longer = [&] {
        step.options.model.config.tied = false;
        const int64_t untied = step.ns();
        step.options.model.config.tied = true;
        return step.ns() - untied;
    };
    // Sums over tensor ranks hide behind it, which they do not without it.
    const int64_t most = 2 * (kLatency + 501 * kHidden * 4) + 50'000;
    EXPECT_LE(longer(), most);
    EXPECT_GT(longer(), most - 2'000);
}

// Live at the end: both sides' gradients, unless passes held more.
TEST(TimedStep, ATiedGradientOfTheOtherSideArrivesWhenActivationsAreGone) {
    Step step(4);
    step.options.model.config.tied = true;
    const PlanRow row = step.row();
    for (const size_t rank : {0U, 3U}) {
        EXPECT_EQ(row.ranks[rank].communication, kTable);
        EXPECT_EQ(row.ranks[rank].activations, 0);
        EXPECT_EQ(row.ranks[rank].vocabulary, 0);
    }
    EXPECT_EQ(row.ranks[1].communication, 0);
    EXPECT_GT(row.ranks[1].activations, 0);
    step.options.seq_length = step.options.model.config.max_position_embeddings = 256;
    const PlanRow large = step.row();
    EXPECT_EQ(large.ranks[3].communication, 0);
    EXPECT_GT(large.ranks[3].activations + large.ranks[3].vocabulary, kTable);
}

// Statistics and factors of 8 tokens, which pass times of a whole output layer leave out.
constexpr int64_t kSoftmaxSums = 8 * (4 + 2) * 4;

// The buckets are the layer, the positions, the last norm and both tables. The simulation runs each
// exchange: one rank's step has no other message, so both agree.
TEST(TimedStep, ReplicasAddUpEveryBucketAsInTheProgram) {
    for (const int replicas : {2, 4}) {
        Step step(1);
        const int64_t alone = step.ns();
        step.candidate.mesh.data = replicas;
        for (const bool slow : {false, true}) {
            if (slow) step.options.device.link_gb_per_s.value = 0.01;
            const int64_t with = step.ns();
            EXPECT_GT(with, alone);
            EXPECT_EQ(with, step.row(Evaluation::simulation).step_ns - kSoftmaxSums)
                << replicas << slow;
        }
    }
}

// Two pieces travel at a time, here those of one bucket.
TEST(TimedStep, LargeBucketsAreAddedUpInPieces) {
    Step step(1);
    step.candidate.mesh.data = 2;
    step.options.device.link_gb_per_s.value = 1e-3;
    step.options.model.config.hidden_size = 64;
    step.options.model.config.vocab_size = 400'000;  // three pieces and a little
    EXPECT_NEAR(static_cast<double>(step.ns()) /
                    static_cast<double>(step.row(Evaluation::simulation).step_ns),
                1, 1e-3);
}

// Gradients of a last stage travel while the other ranks still compute.
TEST(TimedStep, ExchangesHideBehindOtherPasses) {
    Step step(2);
    step.candidate.microbatches = 3;
    const int64_t alone = step.ns();
    step.candidate.mesh.data = 2;
    const int64_t replicas = step.ns();
    EXPECT_NEAR(static_cast<double>(replicas),
                static_cast<double>(step.row(Evaluation::simulation).step_ns),
                0.01 * static_cast<double>(replicas));
    // If the tables, nearly all of the parameters, came after the passes of their ranks:
    const int64_t table = kRows * kHidden;
    EXPECT_LT(replicas - alone, 2 * table * (2 + 4 + 2) + table);
    EXPECT_GT(replicas, alone);
}

TEST(TimedStep, ExpertsThatNobodyElseHasAreNotAddedUp) {
    Step step(1);
    step.options.model.config.moe = {.experts = 4, .top_k = 2, .ffn_hidden_size = 256};
    step.candidate.mesh.data = 2;
    const int64_t all = step.ns();
    step.candidate.mesh.expert = 2;
    // In a bucket of the layer's, of which the rest is still added up: half of its weights are
    // gathered at the end, and it is the longest.
    EXPECT_GT(all - step.ns(), 4 * 3 * kHidden * 256);
    EXPECT_EQ(step.ns(), step.row(Evaluation::simulation).step_ns - kSoftmaxSums);
}

TEST(TimedStep, ReplicasAddUpATiedWeightOnceWhereItIsOne) {
    Step step(2, VocabMode::one_barrier);
    step.candidate.mesh.data = 2;
    step.options.device.link_gb_per_s.value = 0.1;  // both tables take longest
    const int64_t untied = step.ns();
    step.options.model.config.tied = true;
    const int64_t shard = kRows / 2 * kHidden;
    EXPECT_GT(untied - step.ns(), shard * 4);
    EXPECT_NEAR(static_cast<double>(step.ns()),
                static_cast<double>(step.row(Evaluation::simulation).step_ns),
                0.03 * static_cast<double>(step.ns()));
}

TEST(TimedStep, TheSlowestExchangeOfReplicasCounts) {
    for (const int layers_of_last : {1, 3, 5}) {
        Step step(2);
        step.options.model.config.num_layers = 1 + layers_of_last;
        step.candidate.layers_per_stage = {1, layers_of_last};
        step.candidate.mesh.data = 2;
        // The last rank is done first: its report takes so long that it decides.
        step.of_rank(1, Report) = 10'000'000;
        EXPECT_NEAR(static_cast<double>(step.ns()),
                    static_cast<double>(step.row(Evaluation::simulation).step_ns), 2'000.0);
    }
}

TEST(TimedStep, BubbleIsWhatNoPassFills) {
    Step step(2);
    step.options.model.config.tied = true;
    const PlanRow row = step.row();
    const int64_t busy =
        100 + 10'000 + 20'000 + 200 + 11'000 + 300 + 400 + 21'000 + 2 * (50'000 + 600 + 7'000);
    EXPECT_NEAR(row.bubble, 1 - static_cast<double>(busy) / (2 * static_cast<double>(row.step_ns)),
                1e-12);
}

TEST(Evaluate, RatesFollowFromTheTimeOfTheStep) {
    Step step(2);
    step.options.global_batch_size = 3;
    step.options.device.peak_tflops.value = 5;
    for (const Evaluation evaluation : {Evaluation::pass_times, Evaluation::simulation}) {
        const PlanRow row = step.row(evaluation);
        const double seconds = static_cast<double>(row.step_ns) * 1e-9;
        EXPECT_NEAR(row.tokens_per_second * seconds, 3 * 8, 1e-9);
        // Two layers of 4 h^2 and 2 h f, attention to 4 tokens in the mean, and h V.
        const double flops =
            2 * (2.0 * (4 * 16 * 16 + 2 * 16 * 64) + 4.0 * 16 * 4) + 2.0 * 16 * 1000;
        EXPECT_NEAR(row.mfu * seconds * 2 * 5e12, 3 * flops * 3 * 8, 1e-3);
    }
}

TEST(Evaluate, ARankHasWhatItStoresAndWhatLivesAndTheWorstRankDecides) {
    Step step(2, VocabMode::one_barrier);
    step.options.model.config.num_layers = 3;
    step.candidate.layers_per_stage = {1, 2};
    for (const Evaluation evaluation : {Evaluation::pass_times, Evaluation::simulation}) {
        step.options.memory_gib = 0;
        step.options.device.memory_gib.value = 3;
        const PlanRow row = step.row(evaluation);
        ASSERT_EQ(row.ranks.size(), 2U);
        const int64_t first = row.ranks[0].total(), second = row.ranks[1].total();
        EXPECT_GT(second, first);
        EXPECT_EQ(row.worst.total(), second);
        EXPECT_EQ(row.worst.rank, 1);
        EXPECT_EQ(row.spare_bytes, (int64_t{3} << 30) - second);
        step.options.memory_gib = 0.5;
        EXPECT_EQ(step.row(evaluation).spare_bytes, (int64_t{1} << 29) - second);
        step.candidate.layers_per_stage = {2, 1};
        EXPECT_EQ(step.row(evaluation).worst.rank, 0);
        step.candidate.layers_per_stage = {1, 2};
    }
}

// Three purposes in the table; every buffer of a program has one of them.
TEST(Evaluate, SimulationCountsTheBuffersOfThePrograms) {
    using enum Purpose;
    for (const bool tied : {false, true}) {
        Step step(2, tied ? VocabMode::none : VocabMode::one_barrier);
        step.options.model.config.tied = tied;
        step.candidate.mesh.data = 2;
        // Most lives at the end of the step, or in a pass.
        if (!tied) {
            step.options.seq_length = step.options.model.config.max_position_embeddings = 2048;
        }
        const StepModel model = step_model(
            step.options, unit_costs(ModelOnDevice(step.options), step.candidate), step.candidate);
        const Lowered lowered = lower_world(Evaluator(step.options).order(step.candidate),
                                            model.sizes, model.costs, {.receive_ahead = 1});
        step.options.receive_ahead = 1;
        const PlanRow row = step.row(Evaluation::simulation);
        EXPECT_EQ(row.step_ns, simulate(lowered.all(), model.costs).summary.step_ns);
        for (size_t rank = 0; rank < 2; ++rank) {
            const auto bytes = [&](Purpose purpose) {
                return static_cast<int64_t>(
                    lowered.pipeline[rank].peak_by_purpose[static_cast<size_t>(purpose)]);
            };
            EXPECT_EQ(row.ranks[rank].activations,
                      bytes(boundary) + bytes(activation) + bytes(workspace));
            EXPECT_EQ(row.ranks[rank].vocabulary, bytes(vocabulary));
            EXPECT_EQ(row.ranks[rank].communication,
                      bytes(partial_sums) + bytes(report) + bytes(Purpose::tied) + bytes(replicas));
            EXPECT_EQ(bytes(workspace) > 0, !tied);
            int64_t all = 0;
            for (const uint64_t of_purpose : lowered.pipeline[rank].peak_by_purpose) {
                all += static_cast<int64_t>(of_purpose);
            }
            EXPECT_EQ(row.ranks[rank].activations + row.ranks[rank].vocabulary +
                          row.ranks[rank].communication,
                      all);
        }
    }
}

TEST(Evaluate, SimulationPostsReceivesAsEarlyAsAsked) {
    Step step(4);
    step.candidate.microbatches = 6;
    step.options.device.link_latency_us.value = 50;  // longer than a pass
    const StepModel model = step_model(
        step.options, unit_costs(ModelOnDevice(step.options), step.candidate), step.candidate);
    std::vector<int64_t> ns;
    for (const int ahead : {1, kAsSoonAsSent}) {
        step.options.receive_ahead = ahead;
        const Lowered lowered = lower_world(Evaluator(step.options).order(step.candidate),
                                            model.sizes, model.costs, {.receive_ahead = ahead});
        ns.push_back(step.row(Evaluation::simulation).step_ns);
        EXPECT_EQ(ns.back(), simulate(lowered.pipeline, model.costs).summary.step_ns);
    }
    EXPECT_LT(ns[1], ns[0]);
}

TEST(Evaluate, OrdersRecomputationsWhereThereAreAny) {
    Step step(2);
    const auto recomputations = [&](Recompute recompute) {
        step.candidate.recompute = recompute;
        int count = 0;
        for (const std::vector<Pass>& list : Evaluator(step.options).order(step.candidate).passes) {
            for (const Pass& pass : list) count += pass.op == R ? 1 : 0;
        }
        return count;
    };
    EXPECT_EQ(recomputations(Recompute::none), 0);
    EXPECT_EQ(recomputations(Recompute::selective), 2);
    EXPECT_EQ(recomputations(Recompute::full), 2);
}

TEST(Evaluate, CountsThePassesOfOnePipeline) {
    Candidate candidate{.schedule = "1f1b",
                        .vocab_mode = VocabMode::none,
                        .chunks = 2,
                        .mesh = {.pipeline = 3},
                        .microbatches = 5};
    // F, I and W of six stages; E, S, T and G of one rank.
    EXPECT_EQ(count_passes(candidate), (6 * 3 + 4) * 5);
    candidate.recompute = Recompute::full;
    EXPECT_EQ(count_passes(candidate), (6 * 4 + 4) * 5);
    candidate.vocab_mode = VocabMode::interlaced;
    EXPECT_EQ(count_passes(candidate), (6 * 4 + 3 * 4) * 5);
    candidate.mesh = {.pipeline = 3, .data = 2, .tensor = 2};
    EXPECT_EQ(count_passes(candidate), (6 * 4 + 3 * 4) * 5);
}

}  // namespace
}  // namespace vocabpipe::testing
