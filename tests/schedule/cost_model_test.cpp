// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/cost_model.hpp"

#include "tests/schedule/program_tools.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/simulate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string_view>
#include <tuple>

namespace vocabpipe::testing {
namespace {

TEST(TableCosts, AreByStageForTheTransformerAndByRankForTheVocabulary) {
    TableCosts costs = TableCosts::uniform(2, 3, 10, 21, 5);
    costs.stage_ns[2][static_cast<size_t>(Op::B)] = 77;
    costs.rank_ns[1][static_cast<size_t>(Op::T)] = 99;
    EXPECT_EQ(costs.pass_ns(0, {Op::F, 1, 3}), 10);
    EXPECT_EQ(costs.pass_ns(0, {Op::B, 1, 3}), 21);
    EXPECT_EQ(costs.pass_ns(0, {Op::I, 1, 0}) + costs.pass_ns(0, {Op::W, 1, 0}), 21);
    EXPECT_EQ(costs.pass_ns(0, {Op::B, 2, 3}), 77);
    EXPECT_EQ(costs.pass_ns(0, {Op::T, 0, 3}), 5);
    EXPECT_EQ(costs.pass_ns(1, {Op::T, 0, 3}), 99);
    EXPECT_EQ(costs.pass_ns(1, {Op::Update, 0, 0}), 0);
}

TEST(TableCosts, ChargeLatencyAndRatePerLink) {
    TableCosts costs = TableCosts::uniform(4, 4, 1, 1, 1);
    const Group pair{{0, 1}, -1};
    const Group all{{0, 1, 2, 3}, 0};
    EXPECT_EQ(costs.transfer_ns(Do::send, pair, 1000), 0);
    costs.latency_ns = 7;
    EXPECT_EQ(costs.transfer_ns(Do::send, pair, 1000), 7);
    costs.bytes_per_ns = 2;
    EXPECT_EQ(costs.transfer_ns(Do::send, pair, 1000), 507);
    EXPECT_EQ(costs.transfer_ns(Do::broadcast, all, 1000), 7 + 3 * 500);  // root to one by one
    EXPECT_EQ(costs.transfer_ns(Do::all_to_all, all, 1000), 507);
    EXPECT_EQ(costs.local_ns(Do::ordered_sum, 1000), 0);
    costs.local_bytes_per_ns = 4;
    EXPECT_EQ(costs.local_ns(Do::ordered_sum, 1000), 250);
}

// A message of 1000 bytes takes 500, a latency 7; the table of CollectiveAlgorithm for 5 ranks.
TEST(TableCosts, ChargeCollectivesByAlgorithm) {
    using enum CollectiveAlgorithm;
    TableCosts costs = TableCosts::uniform(5, 5, 1, 1, 1);
    costs.latency_ns = 7;
    costs.bytes_per_ns = 2;
    const Group five{{0, 1, 2, 3, 4}, 0};
    const auto all = [&](CollectiveAlgorithm algorithm) {
        costs.algorithms = {algorithm, algorithm, algorithm, algorithm};
        return std::array{costs.transfer_ns(Do::broadcast, five, 1000),
                          costs.transfer_ns(Do::all_gather, five, 1000),
                          costs.transfer_ns(Do::gather, five, 1000),
                          costs.transfer_ns(Do::all_to_all, five, 1000)};
    };
    using Times = std::array<int64_t, 4>;
    EXPECT_EQ(all(linear), (Times{7 + 4 * 500, 7 + 4 * 500, 7 + 4 * 500, 7 + 400}));
    EXPECT_EQ(all(ring), (Times{4 * 7 + 500, 4 * 507, 4 * 507, 4 * 7 + 400}));
    EXPECT_EQ(all(tree), (Times{3 * 507, 3 * 7 + 4 * 500, 3 * 7 + 4 * 500, 3 * (7 + 250)}));
    EXPECT_EQ(all(direct), (Times{507, 507, 507, 507}));
    // A message is a message, whatever collectives do.
    EXPECT_EQ(costs.transfer_ns(Do::send, {{0, 1}, -1}, 1000), 507);
    const Group pair{{0, 1}, 0};
    for (const CollectiveAlgorithm algorithm : {linear, ring, tree, direct}) {
        costs.algorithms.broadcast = algorithm;
        EXPECT_EQ(costs.transfer_ns(Do::broadcast, pair, 1000), 507);
    }
}

TEST(TableCosts, MayLeaveOutWhatCollectivesOfAPipelineCost) {
    TableCosts costs;
    costs.latency_ns = 7;
    costs.free_vocabulary_collectives = true;
    using enum Do;
    for (const Do what : {broadcast, all_gather, all_to_all, gather, reduce}) {
        EXPECT_EQ(costs.transfer_ns(what, {{0, 1}}, 600), 0);
        EXPECT_EQ(costs.transfer_ns(what, {{0, 1}, -1, Axis::model}, 600), 0);
        EXPECT_GE(costs.transfer_ns(what, {{0, 1}, -1, Axis::data}, 600), 7);
        EXPECT_GE(costs.transfer_ns(what, {{0, 1}, -1, Axis::world}, 600), 7);
    }
    EXPECT_EQ(costs.transfer_ns(send, {{0, 1}}, 600), 7);
}

// 5 bytes at 2 bytes per ns take 2.5 ns, 3 take 1.5, 5 at 4 take 1.25.
TEST(TableCosts, RoundTimesToTheNearestNanosecond) {
    TableCosts costs = TableCosts::uniform(2, 2, 1, 1, 1);
    costs.bytes_per_ns = 2;
    costs.local_bytes_per_ns = 2;
    EXPECT_EQ(costs.transfer_ns(Do::send, {{0, 1}, -1}, 5), 3);
    EXPECT_EQ(costs.transfer_ns(Do::send, {{0, 1}, -1}, 3), 2);
    EXPECT_EQ(costs.local_ns(Do::combine_softmax, 5), 3);
    costs.bytes_per_ns = 4;
    costs.local_bytes_per_ns = 4;
    EXPECT_EQ(costs.transfer_ns(Do::send, {{0, 1}, -1}, 5), 1);
    EXPECT_EQ(costs.local_ns(Do::ordered_sum, 5), 1);
}

TEST(TableCosts, UniformSplitsAnOddBackwardWithTheLargerPartInW) {
    const TableCosts costs = TableCosts::uniform(2, 3, 10, 21, 5);
    EXPECT_EQ(costs.pass_ns(0, {Op::I, 1, 0}), 10);
    EXPECT_EQ(costs.pass_ns(0, {Op::W, 1, 0}), 11);
    for (const Op op : {Op::E, Op::G, Op::S, Op::T}) EXPECT_EQ(costs.pass_ns(1, {op, 0, 0}), 5);
    EXPECT_EQ(costs.stage_ns.size(), 3U);
    EXPECT_EQ(costs.rank_ns.size(), 2U);
}

TEST(TableCosts, SlowDownEveryPassButThoseOfTheStep) {
    TableCosts costs = TableCosts::uniform(1, 1, 1, 1, 1);
    costs.slowdown_permille = 40;
    for (const Op op : {Op::F, Op::B, Op::W, Op::S, Op::E}) {
        EXPECT_EQ(costs.overlap_slowdown_permille(0, {op, 0, 0}), 40);
    }
    for (const Op op : {Op::Reduce, Op::Report, Op::Update}) {
        EXPECT_EQ(costs.overlap_slowdown_permille(0, {op, 0, 0}), 0);
    }
}

/// Every field.
std::array<int64_t, 5> fields(const StreamedShare& share) {
    return {share.input_end, share.output_begin, share.output_end, share.input_piece_ns,
            share.output_piece_ns};
}
using Fields = std::array<int64_t, 5>;

// A layer's forward has 12 h^2: 3 for q, k and v, 1, 8 for the MLP. With four layers 3 / 12 are 62
// thousandths of a stage, and 8 / 12 are 166. B is twice as long, and its first layer's weight
// gradients are half of that layer: 8 / 24 are 83, 1 / 2 is 125.
TEST(TableCosts, StreamRowsByTheProductsThatPassesBeginAndEndWith) {
    TableCosts costs = TableCosts::uniform(1, 1, 1000, 2000, 500);
    costs.layers_per_stage = 4;
    costs.piece_ns = 7;
    const auto of = [&](Op op) { return fields(costs.streamed_share(0, {op, 0, 0})); };
    EXPECT_EQ(of(Op::F), (Fields{62, 1000 - 166, 1000, 7, 14}));
    EXPECT_EQ(of(Op::I), (Fields{166, 1000 - 62, 1000, 14, 7}));
    EXPECT_EQ(of(Op::B), (Fields{83, 1000 - 125, 1000 - 125, 14, 0}));
    EXPECT_EQ(of(Op::S), (Fields{1000, 1000, 1000, 7, 0})) << "S as long as T has one product";
    EXPECT_EQ(of(Op::T), (Fields{0, 500, 500, 0, 0}));
    for (const Op op : {Op::W, Op::E, Op::G, Op::Update}) {
        EXPECT_EQ(of(op), (Fields{0, 1000, 1000, 0, 0})) << to_string(Pass{op, 0, 0});
    }
    costs.rank_ns[0][static_cast<size_t>(Op::S)] = 501;
    EXPECT_EQ(of(Op::S), (Fields{500, 1000, 1000, 7, 0})) << "a longer S has two";
    costs.layers_per_stage = 0.25;  // as one layer
    EXPECT_EQ(of(Op::F), (Fields{250, 1000 - 666, 1000, 7, 14}));
    EXPECT_EQ(of(Op::I), (Fields{666, 1000 - 250, 1000, 14, 7}));
    costs.layers_per_stage = 0;  // not known
    EXPECT_EQ(of(Op::F), (Fields{0, 1000, 1000, 0, 0}));
}

/// What was asked: (what, size of group or 0, bytes).
using Question = std::tuple<std::string_view, size_t, int64_t>;

class AskedCosts final : public CostModel {
public:
    int64_t pass_ns(int /*rank*/, const Pass& /*pass*/) const override { return 10; }
    int64_t transfer_ns(Do what, const Group& group, int64_t bytes) const override {
        asked.emplace(to_string(what), group.ranks.size(), bytes);
        return 3;
    }
    int64_t local_ns(Do what, int64_t bytes) const override {
        asked.emplace(to_string(what), 0, bytes);
        return 1;
    }
    mutable std::multiset<Question> asked;
};

// The order is made from these costs and the prediction from those: they must be the same.
TEST(CostModel, IsAskedTheSameByLoweringAndSimulation) {
    std::mt19937 random(6);
    for (int i = 0; i < 200; ++i) {
        const Schedule schedule = random_schedule(random, {.most_ranks = 4});
        StepSizes sizes = sizes_for(schedule, 24, 8);  // 24 rows divide among 1 to 4 owners
        sizes.dtype = random() % 2 == 0 ? DType::fp32 : DType::bf16;
        sizes.report_bytes = 40;
        const AskedCosts by_lowering;
        const std::vector<Program> programs = lower(schedule, sizes, by_lowering);
        const AskedCosts by_simulation;
        (void)simulate(programs, by_simulation);
        ASSERT_EQ(by_lowering.asked, by_simulation.asked) << describe(schedule);
    }
}

TEST(CostModel, IsAskedForTheBytesThatAreSentOrTouched) {
    // Two ranks, both with half of the rows: N=24, h=8; fp32 sums of bf16 activations.
    const Schedule schedule = generated({"1f1b", VocabMode::one_barrier, false}, 2, 1, 10);
    StepSizes sizes = sizes_for(schedule, 24, 8);
    sizes.dtype = DType::bf16;
    const AskedCosts costs;
    const std::vector<Program> programs = lower(schedule, sizes, costs);
    const int64_t boundary = 24 * 8 * 2;
    const int64_t statistics = 24 * 4 * 4;
    const int64_t sum = 24 * 8 * 4;
    const int64_t factors = 24 * 2 * 4;
    const std::multiset<Question> expected{
        {"all_to_all", 2, boundary},                  // E: rows in the run's type
        {"ordered_sum", 0, boundary + boundary / 2},  // two blocks of 12 rows into one
        {"ordered_sum", 0, boundary + boundary / 2},
        {"gather", 2, boundary / 2},
        {"send", 2, boundary},          // activation
        {"broadcast", 2, boundary},     // C0
        {"all_gather", 2, statistics},  // C1
        {"combine_softmax", 0, 2 * statistics + factors + sum},
        {"combine_softmax", 0, 2 * statistics + factors + sum},
        {"all_to_all", 2, sum},
        {"ordered_sum", 0, sum + boundary / 2},
        {"ordered_sum", 0, sum + boundary / 2},
        {"gather", 2, boundary / 2},
        {"send", 2, boundary},       // gradient
        {"broadcast", 2, boundary},  // G
    };
    EXPECT_EQ(costs.asked, expected);
}

}  // namespace
}  // namespace vocabpipe::testing
