// SPDX-License-Identifier: Apache-2.0
// Bounds of memory, added up again from the model of a step; bounds of time, by hand.
#include "src/plan/step_bound.hpp"

#include "src/model/parameter_groups.hpp"
#include "src/plan/candidates.hpp"
#include "src/plan/step_model.hpp"
#include "src/plan/unit_costs.hpp"
#include "tests/plan/plan_cases.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// What a rank keeps of one microbatch when its highest stage is about to end its backward, or
/// when it scores.
int64_t kept_bytes(const StepModel& step, const Candidate& candidate, int rank) {
    const bool recomputes = candidate.recompute != Recompute::none;
    int64_t kept = 0, backward = 0;
    for (size_t stage = 0; stage < step.placement.rank_of_stage.size(); ++stage) {
        if (step.placement.rank_of_stage[stage] != rank) continue;
        backward = 0;
        if (static_cast<int>(stage) < step.trained.first_backward) continue;
        const StageBytes& bytes = step.sizes.stages[stage];
        kept += bytes.saved;
        (recomputes ? backward : kept) += bytes.recomputed;
        const int64_t whole = bytes.backward_workspace, half = bytes.input_gradient_workspace;
        backward += generator(candidate.schedule).splits_backward && half < whole ? half : whole;
    }
    int64_t score = 0;
    if (step.placement.output.rows(rank) > 0) {
        const ShardBytes& shard = step.sizes.shards[static_cast<size_t>(rank)];
        score = shard.exp_logits + shard.score_workspace;
    }
    return step.persistent[static_cast<size_t>(rank)].total() + kept + std::max(backward, score);
}

void expect_bytes(PlanOptions options) {
    options.recompute = {Recompute::none, Recompute::selective, Recompute::full};
    const ModelOnDevice on_device(options);
    for (const Candidate& candidate : list_candidates(options).possible) {
        StepModel step = step_model(options, unit_costs(on_device, candidate), candidate, false);
        const auto bound = [&] {
            return bound_step(step, candidate, options.gpu_memory_bytes()).memory_bytes;
        };
        int64_t most = 0;
        for (int r = 0; r < step.placement.ranks; ++r) {
            most = std::max(most, kept_bytes(step, candidate, r));
        }
        EXPECT_EQ(bound(), most) << to_string(candidate);
        // Each rank in turn needs most.
        for (int r = 0; r < step.placement.ranks; ++r) {
            PlannedMemory& memory = step.persistent[static_cast<size_t>(r)];
            memory.weights += int64_t{1} << 50;
            EXPECT_EQ(bound(), kept_bytes(step, candidate, r)) << to_string(candidate) << r;
            memory.weights -= int64_t{1} << 50;
        }
    }
}

TEST(MemoryBound, IsTheSumOfWhatOneMicrobatchNeeds) {
    expect_bytes(small_plan());
}

TEST(MemoryBound, LeavesOutStagesWithoutBackwards) {
    PlanOptions options = small_plan();
    use_parameter_groups(options, {parse_parameter_group("*.w?e.*:freeze"),
                                   parse_parameter_group("*.h.[0125].*:freeze")});
    expect_bytes(options);
}

/// What a test says of a pass.
struct CostOf {
    Op op;
    int64_t ns;
};
void set_costs(TableCosts::OpCosts& costs, const std::vector<CostOf>& known) {
    for (const auto& [op, ns] : known) costs[static_cast<size_t>(op)] = ns;
}

constexpr int64_t kNever = 1'000'000'000;  // ns of passes that no bound may count

/// Three microbatches on two ranks, with bounds by hand.
class TimeBound : public ::testing::Test {
protected:
    explicit TimeBound(std::string schedule = "1f1b", int chunks = 1) {
        options_.gpus = 2;
        options_.device = instant_device();
        options_.device.message_efficiency.value = 1;
        candidate_.schedule = std::move(schedule);
        candidate_.chunks = chunks;
        candidate_.layers_per_stage.assign(static_cast<size_t>(2 * chunks), 4 / chunks);
        candidate_.mesh.pipeline = 2;
        candidate_.microbatches = 3;
        use(VocabMode::none);
    }
    /// Passes are those of two stages of which the first is slower, on links of 100 ns.
    void use(VocabMode mode) {
        candidate_.vocab_mode = mode;
        UnitCosts units;
        units.layers.resize(8);
        step_ = step_model(options_, units, candidate_);
        for (TableCosts::OpCosts& rank : step_->costs.rank_ns) rank.fill(0);  // after the passes
        for (TableCosts::OpCosts& stage : costs().stage) stage.fill(kNever);
        for (TableCosts::OpCosts& rank : costs().rank) rank.fill(kNever);
        costs().hop = 100;
        if (mode == VocabMode::none) {
            stage(0, {{Op::F, 10}, {Op::B, 200}});
            stage(1, {{Op::F, 30}, {Op::B, 50}});
            set_costs(costs().rank[0], {{Op::E, 1}, {Op::G, 4}});
            set_costs(costs().rank[1], {{Op::S, 2}, {Op::T, 3}});
        }
    }
    PassCosts& costs() { return step_->generate.costs; }
    void stage(size_t index, const std::vector<CostOf>& known) {
        set_costs(costs().stage[index], known);
    }
    void recompute() {
        candidate_.recompute = Recompute::selective;
        stage(0, {{Op::R, 7}});
        stage(1, {{Op::R, 9}});
    }
    /// The bound with one rank's Report so long that the others' ends do not matter.
    StepBound bound_of(size_t rank) {
        constexpr int64_t kLong = int64_t{1} << 50;
        set_costs(step_->costs.rank_ns[rank], {{Op::Report, kLong}});
        StepBound bound = bound_step(*step_, candidate_, kMemory);
        set_costs(step_->costs.rank_ns[rank], {{Op::Report, 0}});
        bound.step_ns -= kLong;
        bound.fitting_step_ns -= kLong;
        return bound;
    }
    std::vector<int64_t> ends() { return {bound_of(0).step_ns, bound_of(1).step_ns}; }
    /// With so many bytes for activations on each rank.
    std::vector<int64_t> fitting_ends(int64_t spare) {
        for (PlannedMemory& memory : step_->persistent) memory = {.weights = kMemory - spare};
        return {bound_of(0).fitting_step_ns, bound_of(1).fitting_step_ns};
    }
    /// Bytes that a stage saves from F to B, and those that R makes again.
    void keep(size_t index, int64_t saved, int64_t recomputed) {
        step_->sizes.stages[index] = {.saved = saved, .recomputed = recomputed};
    }

    static constexpr int64_t kMemory = int64_t{1} << 40;
    PlanOptions options_ = small_plan();
    Candidate candidate_;
    std::optional<StepModel> step_;
};

using Ends = std::vector<int64_t>;

// The first microbatch is back at 1 + 10 + 100 + 30 + 2 + 3 + 50 + 100 = 296 on the first rank,
// which then has three B and G; the last one begins at 111, and has all its work to do.
TEST_F(TimeBound, OfARankAddsItsBackwardsToTheFirstOne) {
    EXPECT_EQ(ends(), (Ends{296 + 3 * 204, 111 + 3 * (30 + 2 + 3 + 50)}));
}

TEST_F(TimeBound, HasTheWayOfTheLastBackwardToTheFirstStage) {
    stage(0, {{Op::B, 50}});
    stage(1, {{Op::B, 200}});
    const int64_t last = 111 + 3 * (30 + 2 + 3 + 200);
    EXPECT_EQ(ends(), (Ends{last + 100 + 50 + 4, last}));
}

TEST_F(TimeBound, HasAllWorkOfARank) {
    stage(0, {{Op::F, 1000}});
    EXPECT_EQ(ends(), (Ends{3 * (1 + 1000 + 200 + 4), 1101 + 3 * (30 + 2 + 3 + 50)}));
    recompute();
    EXPECT_EQ(ends(), (Ends{3 * (1 + 1007 + 200 + 4), 1101 + 3 * (39 + 2 + 3 + 50)}));
}

TEST_F(TimeBound, LeavesOutBackwardsOfFrozenStages) {
    step_->trained = {.stages = {false, true}, .embedding = false, .first_backward = 1};
    EXPECT_EQ(ends(), (Ends{3 * (1 + 10), 111 + 3 * (30 + 2 + 3 + 50)}));
    keep(0, 7, 5);
    keep(1, 0, 0);
    EXPECT_EQ(fitting_ends(10), (Ends{1 + 12 * 10 * 3 / 10 - 1, 366})) << "as long as its F";
}

// Bounds of pairs whose passes each compute for 70 % of their time: what both compute, or one kind
// alone; and what runs beside no other pass.
TEST_F(TimeBound, HasWhatPairsCompute) {
    step_->costs.exchange_permille = 300;
    stage(0, {{Op::F, 1000}, {Op::B, 200}});
    EXPECT_EQ(ends()[0], 3 * (1 + 1000 + 4));
    stage(0, {{Op::B, 901}});
    recompute();
    EXPECT_EQ(ends()[0], 3 * (1 + 7 + 4) + 3990 + 2);  // 5703 * 0.7, rounded down
    stage(0, {{Op::F, 10}, {Op::B, 50}});
    stage(1, {{Op::F, 150}, {Op::B, 200}});
    const int64_t last = 111 + 3 * (9 + 2 + 3) + 735;
    EXPECT_EQ(ends(), (Ends{last + 100 + 50 + 4, last}));
}

// Activations of the first stage live from the begin of F at 1 to the end of B, 296 + 200.
TEST_F(TimeBound, HasTheTimeForWhichActivationsLive) {
    keep(0, 7, 5);
    keep(1, 70, 50);
    const int64_t first = 12 * 495, last = 120 * (30 + 5 + 50);
    EXPECT_EQ(fitting_ends(10), (Ends{1 + first * 3 / 10 - 1, 111 + last * 3 / 10 - 1}));
    EXPECT_EQ(fitting_ends(7), (Ends{1 + 2545 - 1, 111 + 4371 - 1})) << "rounded down";
    EXPECT_EQ(fitting_ends(1), (Ends{1 + first * 3 - 1, 111 + last * 3 - 1}));
    for (const int64_t spare : {int64_t{0}, int64_t{-1}, kMemory}) {
        EXPECT_EQ(fitting_ends(spare), (Ends{908, 366})) << spare;
    }
    // What is recomputed lives from R to the end of B.
    recompute();
    EXPECT_EQ(fitting_ends(10),
              (Ends{1 + (7 * 495 + 5 * 207) * 3 / 10 - 1, 111 + (70 * 85 + 50 * 59) * 3 / 10 - 1}));
}

/// Costs of a sharded vocabulary, all of another order.
class ShardedTimeBound : public TimeBound {
protected:
    void use_shards(VocabMode mode) {
        use(mode);
        stage(0, {{Op::F, 10}, {Op::B, 200}});
        stage(1, {{Op::F, 30}, {Op::B, 50}});
        set_costs(costs().rank[0], {{Op::E, 1}, {Op::S, 20}, {Op::T, 40}, {Op::G, 5}});
        set_costs(costs().rank[1], {{Op::E, 2}, {Op::S, 30}, {Op::T, 50}, {Op::G, 6}});
        costs().c0 = costs().c1 = costs().reduce = costs().gradient = 0;
    }
    void communicate() {
        costs().c0 = 1'000;
        costs().c1 = 5'000;
        costs().reduce = 20'000;
        costs().gradient = 300'000;
    }
};

// The slower E and its sum, F, hop and F, S of the first rank after C0, C1 and the sum; with two
// barriers the slower T before it.
TEST_F(ShardedTimeBound, HasTheBarriersOfTheFirstMicrobatch) {
    for (const auto& [mode, second] :
         {std::pair{VocabMode::one_barrier, 0}, {VocabMode::two_barriers, 50}}) {
        use_shards(mode);
        communicate();
        const int64_t last = 2 + 20'000 + 10 + 100 + 30 + 1'000 + 20 + 5'000 + second + 20'000;
        const int64_t first = last + 50 + 100;
        // The last G of the other rank waits for the gradient of the last B of the first one.
        EXPECT_EQ(ends(), (Ends{first + 3 * 205, first + 3 * 200 + 300'000 + 6})) << second;
    }
    // With C0 the last rank waits for nobody: the time of its own S.
    use_shards(VocabMode::one_barrier);
    set_costs(costs().rank[1], {{Op::S, 3'000}, {Op::G, 0}});
    costs().c0 = 1'000;
    costs().reduce = 20'000;
    const int64_t first = 2 + 20'000 + 140 + 3'000 + 20'000 + 150;
    EXPECT_EQ(ends(), (Ends{first + 3 * 205, first - 150 + 3 * 50}));
}

TEST_F(ShardedTimeBound, HasTOfALastRankBeforeTheWayOnlyWithTwoBarriers) {
    use_shards(VocabMode::two_barriers);
    set_costs(costs().rank[0], {{Op::T, 4'000}});
    set_costs(costs().rank[1], {{Op::T, 5'000}});
    const int64_t at = 112 + 3 * (30 + 30 + 5'000 + 50) + 100 + 200;
    EXPECT_EQ(ends(), (Ends{at + 5, at + 6}));
    // Else only the work of a rank has it, E of which may go before what it waits for.
    const std::vector<TableCosts::OpCosts> ranks = costs().rank;
    use_shards(VocabMode::one_barrier);
    costs().rank = ranks;
    EXPECT_EQ(ends(),
              (Ends{3 * (1 + 10 + 20 + 4'000 + 200 + 5), 112 + 3 * (30 + 30 + 5'000 + 50 + 6)}));
}

// Two replicas, whose sums take no time. T of all ranks follows the last stage's first F.
TEST_F(ShardedTimeBound, HasTheGradientsOfTheOutputLayer) {
    options_.gpus = 4;
    candidate_.mesh.data = 2;
    use_shards(VocabMode::one_barrier);
    costs().hop = 10'000;
    set_costs(costs().rank[0], {{Op::T, 40'000}});
    EXPECT_EQ(ends()[0], 2 + 10 + 10'000 + 30 + 3 * 40'000);
}

/// Backwards of two passes.
class SplitTimeBound : public TimeBound {
protected:
    SplitTimeBound() : TimeBound("zb") {}
};

// A backward takes B, or I and W where they are less. The stage before waits for the less of B and
// I.
TEST_F(SplitTimeBound, HasTheLessOfBothKindsOfBackwards) {
    stage(0, {{Op::I, 60}, {Op::W, 150}});
    stage(1, {{Op::I, 40}, {Op::W, 5}});
    EXPECT_EQ(ends(), (Ends{286 + 3 * 204, 111 + 3 * (30 + 2 + 3 + 45)}));
    step_->trained.stages[0] = false;  // no W: the last backward of the last stage counts
    EXPECT_EQ(ends(), (Ends{111 + 3 * (30 + 2 + 3 + 40) + 100 + 60 + 4, 351}));
    step_->trained.stages[0] = true;
    stage(1, {{Op::I, 70}, {Op::W, 1}});
    EXPECT_EQ(ends(), (Ends{296 + 3 * 204, 366}));
}

TEST_F(SplitTimeBound, EndsWithWOfTheFirstStage) {
    stage(0, {{Op::I, 10}, {Op::W, 150}});
    stage(1, {{Op::B, 300}, {Op::I, 200}, {Op::W, 100}});
    const int64_t last_input = 111 + 3 * (30 + 2 + 3 + 200);
    EXPECT_EQ(ends(), (Ends{last_input + 100 + 10 + 150, 111 + 3 * (30 + 2 + 3 + 300)}));
}

/// Stages 0 and 3 on one rank, 1 and 2 on the other.
class VTimeBound : public TimeBound {
protected:
    VTimeBound() : TimeBound("zb-v", 2) {
        stage(0, {{Op::F, 10}, {Op::I, 100}, {Op::W, 50}, {Op::B, 150}});
        stage(1, {{Op::F, 20}, {Op::I, 200}, {Op::W, 60}, {Op::B, 250}});
        stage(2, {{Op::F, 30}, {Op::I, 300}, {Op::W, 70}, {Op::B, 380}});
        stage(3, {{Op::F, 40}, {Op::I, 400}, {Op::W, 80}, {Op::B, 480}});
        set_costs(costs().rank[0], {{Op::S, 2}, {Op::T, 3}});
        costs().hop = 1000;
    }
};

TEST_F(VTimeBound, HasHopsBetweenRanksOnly) {
    const int64_t third = 1 + 10 + 1000 + 20 + 30 + 1000 + 40 + 2 + 3 + 400 + 1000;
    // The last I of stage 1 follows three of stage 2 and two more of its own.
    const int64_t first = third + 3 * (300 + 200) + 1000 + 100 + 50;
    EXPECT_EQ(ends(), (Ends{first, third + 3 * (250 + 370)}));
    keep(0, 0, 0);
    keep(1, 2, 1);
    keep(2, 3, 1);
    keep(3, 0, 0);
    const int64_t second_life = 30 + (third - 1061) + 370;
    const int64_t first_life = 20 + (third + 300 - 1031) + 250;
    EXPECT_EQ(fitting_ends(10),
              (Ends{first, 1011 + (4 * second_life + 3 * first_life) * 3 / 10 - 1}));
}

}  // namespace
}  // namespace vocabpipe::testing
