// SPDX-License-Identifier: Apache-2.0
// Properties of routing plans in random cases: every choice is one row of each member that has its
// expert, in one wave; both ends of a message agree, no product is early, no wave exceeds the
// budget.
#include "src/model/blocks/moe/routing_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

constexpr int kCases = 20'000;

/// A team, and what its tokens have chosen.
struct Case {
    RoutingShape shape;
    std::vector<std::vector<int32_t>> choices;  ///< [member]

    [[nodiscard]] RoutingPlan plan(int rank) const {
        return {shape, rank, {choices.begin(), choices.end()}};
    }
    [[nodiscard]] std::vector<RoutingPlan> plans() const {
        std::vector<RoutingPlan> all;
        for (int rank = 0; rank < shape.members; ++rank) all.push_back(plan(rank));
        return all;
    }
    /// Whether a member has a part of the expert.
    [[nodiscard]] bool owns(int member, int32_t expert) const {
        return expert / shape.own_experts() == member / shape.expert_tensor;
    }
    /// Number of `source` in the order in which its copies come to `rank`.
    [[nodiscard]] int turn(int rank, int source) const {
        return (rank - source + shape.members) % shape.members;
    }
    /// The rows of the experts of a member.
    [[nodiscard]] int64_t rows(int member) const {
        int64_t count = 0;
        for (const auto& of_member : choices) {
            count += std::ranges::count_if(of_member, [&](int32_t e) { return owns(member, e); });
        }
        return count;
    }
};

int64_t uniform(std::mt19937& random, int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
}

/// k different experts per token, of all, of those of one member, or always the same ones.
Case random_case(unsigned seed) {
    std::mt19937 random(seed);
    Case c;
    RoutingShape& shape = c.shape;
    shape.expert_tensor = static_cast<int>(std::max<int64_t>(1, uniform(random, -2, 3)));
    const int64_t groups = uniform(random, 1, shape.expert_tensor == 1 ? 5 : 3);
    shape.members = static_cast<int>(groups) * shape.expert_tensor;
    shape.experts = groups * uniform(random, 1, 5);
    shape.per_token = uniform(random, 1, std::min<int64_t>(shape.experts, 4));
    shape.tokens = uniform(random, 0, seed % 16 == 0 ? 130 : 20);
    shape.pieces = static_cast<int>(uniform(random, 1, 4));
    const int64_t worst = std::max<int64_t>(shape.most_rows(), shape.most_rows_of_copy());
    shape.budget =
        uniform(random, 0, 1) == 0 ? worst : uniform(random, shape.most_rows_of_copy(), worst);
    std::vector<int32_t> open(static_cast<size_t>(shape.experts));
    std::iota(open.begin(), open.end(), 0);
    const int64_t kind = uniform(random, 0, 3);
    if (kind > 0) {  // few experts, at least k of them
        std::ranges::shuffle(open, random);
        open.resize(static_cast<size_t>(
            kind == 1 ? shape.per_token : uniform(random, shape.per_token, shape.experts)));
    }
    c.choices.resize(static_cast<size_t>(shape.members));
    for (auto& of_member : c.choices) {
        for (int64_t n = 0; n < shape.tokens; ++n) {
            std::ranges::shuffle(open, random);
            of_member.insert(of_member.end(), open.begin(), open.begin() + shape.per_token);
        }
    }
    return c;
}

using Slot = std::tuple<int, int64_t, int64_t>;  // member, token, choice
using Row = std::tuple<Slot, int>;               // and part of the expert

/// Rows of one wave of one member; adds what they are.
void check_rows(const Case& c, int rank, const RoutingWave& wave, std::vector<Row>& rows) {
    const int64_t k = c.shape.per_token;
    ASSERT_LE(wave.row_count(), c.shape.budget);
    ASSERT_EQ(std::ssize(wave.rows), c.shape.own_experts());
    ASSERT_EQ(std::ssize(wave.row_of_slot), wave.copy_count() * k);
    int64_t next = 0;
    for (int64_t expert = 0; expert < c.shape.own_experts(); ++expert) {
        const RowRange range = wave.rows[static_cast<size_t>(expert)];
        ASSERT_EQ(range.first, next);
        next = range.end;
        int64_t before = -1;
        for (int64_t row = range.first; row < range.end; ++row) {
            const int64_t slot = wave.slot_of_row[static_cast<size_t>(row)];
            ASSERT_GT(slot / k, before) << "rows of an expert in the order of arrival";
            before = slot / k;
            ASSERT_EQ(wave.row_of_slot[static_cast<size_t>(slot)], row);
            const int64_t token = wave.token_of_copy[static_cast<size_t>(slot / k)];
            const auto source = static_cast<int>(token / c.shape.tokens);
            const int64_t n = token % c.shape.tokens;
            ASSERT_EQ(c.choices[static_cast<size_t>(source)][static_cast<size_t>(n * k + slot % k)],
                      c.shape.first_expert(rank) + expert);
            rows.emplace_back(Slot{source, n, slot % k}, rank % c.shape.expert_tensor);
        }
    }
    ASSERT_EQ(next, wave.row_count());
    ASSERT_EQ(std::ranges::count_if(wave.row_of_slot, [](int32_t row) { return row >= 0; }), next);
}

/// Copies that have arrived with a step: all of sources before it, and its pieces; and without the
/// last of these.
RowRange arrived(const Case& c, int rank, const RoutingWave& wave, const RoutingWave::Step& step) {
    int64_t copies = 0;
    int64_t last = 0;
    for (int source = 0; source < c.shape.members; ++source) {
        const int64_t of_source = wave.copies[static_cast<size_t>(source)].size();
        if (c.turn(rank, source) < c.turn(rank, step.source)) copies += of_source;
        if (source != step.source) continue;
        const TileMap map = pieces_of_copies(of_source, source == rank ? 1 : c.shape.pieces);
        copies += map.rows(0, step.pieces - 1).end;
        last = map.rows(0, step.pieces - 1).size();
    }
    return {copies - last, copies};
}

/// No row is computed before its copy is there, every row once, and no tile later than needed.
void check_steps(const Case& c, int rank, const RoutingWave& wave) {
    std::vector<int64_t> done;
    for (const RowRange& of_expert : wave.rows) done.push_back(of_expert.first);
    int64_t before = 0;
    for (const RoutingWave::Step& step : wave.steps) {
        const auto [without, copies] = arrived(c, rank, wave, step);
        ASSERT_EQ(without, before) << "steps of all pieces in the order of arrival";
        before = copies;
        for (size_t expert = 0; expert < step.rows.size(); ++expert) {
            const RowRange rows = step.rows[expert];
            if (rows.size() == 0) continue;
            ASSERT_EQ(rows.first, done[expert]);
            done[expert] = rows.end;
            const int64_t cut = rows.end - wave.rows[expert].first;
            if (rows.end != wave.rows[expert].end) {
                ASSERT_EQ(cut % TileMap::kCut, 0);
                ASSERT_GE(rows.size(), TileMap::kFewest);
            }
            const int64_t last = wave.slot_of_row[static_cast<size_t>(rows.end - 1)];
            ASSERT_LT(last / c.shape.per_token, copies) << "early";
            ASSERT_GE(last / c.shape.per_token, without) << "late";
        }
    }
    ASSERT_EQ(before, wave.copy_count());
    for (size_t expert = 0; expert < done.size(); ++expert) {
        ASSERT_EQ(done[expert], wave.rows[expert].end);
    }
}

/// What each member sends in a wave is what the other one expects, token by token.
void check_ends(const Case& c, const std::vector<RoutingWave>& waves, std::set<Slot>& copies) {
    for (int home = 0; home < c.shape.members; ++home) {
        const RoutingWave& sends = waves[static_cast<size_t>(home)];
        for (int owner = 0; owner < c.shape.members; ++owner) {
            const RoutingWave& receives = waves[static_cast<size_t>(owner)];
            const std::vector<int32_t>& tokens = sends.tokens[static_cast<size_t>(owner)];
            const RowRange at = receives.copies[static_cast<size_t>(home)];
            ASSERT_EQ(std::ssize(tokens), at.size());
            for (int64_t i = 0; i < at.size(); ++i) {
                const int64_t token = tokens[static_cast<size_t>(i)];
                ASSERT_EQ(receives.token_of_copy[static_cast<size_t>(at.first + i)],
                          home * c.shape.tokens + token);
                ASSERT_EQ(sends.copy_of_token[static_cast<size_t>(token * c.shape.members + owner)],
                          i);
                ASSERT_TRUE(copies.emplace(home, token, owner).second) << "sent twice";
            }
        }
        const auto sent =
            std::ranges::count_if(sends.copy_of_token, [](int32_t i) { return i >= 0; });
        int64_t tokens = 0;
        for (const auto& of_owner : sends.tokens) tokens += std::ssize(of_owner);
        ASSERT_EQ(sent, tokens);
    }
}

void check(const Case& c) {
    const std::vector<RoutingPlan> plans = c.plans();
    std::vector<Row> made;
    std::set<Slot> copies;
    int64_t least_waves = 1, most_waves = 1;
    for (int member = 0; member < c.shape.members; ++member) {
        ASSERT_EQ(plans[static_cast<size_t>(member)].waves(), plans.front().waves());
        const int64_t rows = c.rows(member);
        if (rows == 0) continue;
        const int64_t sure =
            c.shape.budget - c.shape.most_rows_of_copy() + 1;  // rows of a full wave
        least_waves = std::max(least_waves, (rows + c.shape.budget - 1) / c.shape.budget);
        if (rows > c.shape.budget) most_waves = std::max(most_waves, (rows + sure - 1) / sure);
    }
    ASSERT_GE(plans.front().waves(), least_waves);
    ASSERT_LE(plans.front().waves(), most_waves);
    for (int number = 0; number < plans.front().waves(); ++number) {
        std::vector<RoutingWave> waves;
        for (const RoutingPlan& plan : plans) waves.push_back(plan.wave(number));
        for (int rank = 0; rank < c.shape.members; ++rank) {
            const RoutingWave& wave = waves[static_cast<size_t>(rank)];
            ASSERT_NO_FATAL_FAILURE(check_rows(c, rank, wave, made));
            ASSERT_NO_FATAL_FAILURE(check_steps(c, rank, wave));
            ASSERT_LE(wave.copy_count(), c.shape.most_received());
        }
        ASSERT_NO_FATAL_FAILURE(check_ends(c, waves, copies));
    }
    ASSERT_EQ(std::ssize(made),
              c.shape.members * c.shape.tokens * c.shape.per_token * c.shape.expert_tensor);
    std::ranges::sort(made);
    ASSERT_EQ(std::ranges::adjacent_find(made), made.end()) << "a row made twice";
    ASSERT_LE(std::ssize(copies), c.shape.members * c.shape.tokens * c.shape.most_copies());
}

TEST(RoutingPlan, HoldsInRandomCases) {
    for (unsigned seed = 0; seed < kCases; ++seed) {
        SCOPED_TRACE(seed);
        ASSERT_NO_FATAL_FAILURE(check(random_case(seed)));
    }
}

TEST(RoutingPlan, ComputesLocalRowsFirstAndThenByArrival) {
    // Two members, two experts each; every token chooses both experts of member 0.
    Case c{
        .shape =
            {.members = 2, .tokens = 96, .experts = 4, .per_token = 2, .budget = 1000, .pieces = 2},
        .choices = {}};
    for (int member = 0; member < 2; ++member) {
        std::vector<int32_t>& choices = c.choices.emplace_back();
        for (int n = 0; n < 96; ++n) choices.insert(choices.end(), {1, 0});
    }
    const RoutingWave wave = c.plan(0).wave(0);
    ASSERT_EQ(wave.steps.size(), 3U);
    const std::vector<RowRange> own{{0, 96}, {192, 288}};
    EXPECT_EQ(wave.steps[0].source, 0);
    EXPECT_EQ(wave.steps[0].rows, own);
    EXPECT_EQ(wave.steps[1].source, 1);
    EXPECT_EQ(wave.steps[1].pieces, 1);
    EXPECT_EQ(wave.steps[2].pieces, 2);
    // Tiles are of 32 rows: the first piece of 48 copies completes one of them.
    const std::vector<RowRange> one_tile{{96, 128}, {288, 320}}, rest{{128, 192}, {320, 384}};
    EXPECT_EQ(wave.steps[1].rows, one_tile);
    EXPECT_EQ(wave.steps[2].rows, rest);
    EXPECT_EQ(c.plan(1).wave(0).row_count(), 0);
    EXPECT_TRUE(c.plan(1).wave(0).steps.empty());
}

TEST(RoutingPlan, TakesMoreWavesThanOneForWhatExceedsTheBudget) {
    Case c{.shape = {.members = 2, .tokens = 100, .experts = 2, .per_token = 1, .budget = 128},
           .choices = {std::vector<int32_t>(100, 1), std::vector<int32_t>(100, 1)}};
    EXPECT_EQ(c.plan(0).waves(), 2);
    EXPECT_EQ(c.plan(1).wave(0).row_count(), 128);
    EXPECT_EQ(c.plan(1).wave(1).row_count(), 72);
    EXPECT_EQ(c.plan(0).wave(0).tokens[1].size(), 28U) << "own tokens of member 1 come first";
    EXPECT_EQ(c.plan(0).wave(1).tokens[1].size(), 72U);
}

TEST(RowBudget, IsAFactorOfTheMeanBetweenATileAndTheWorstCase) {
    const RoutingShape shape{.members = 4, .tokens = 1000, .experts = 8, .per_token = 2};
    EXPECT_EQ(row_budget(shape, 1.25), 2500);
    EXPECT_EQ(row_budget(shape, 0.001), 128);
    EXPECT_EQ(row_budget(shape, 100), 8000);
    const RoutingShape few{.members = 2, .tokens = 10, .experts = 2, .per_token = 2};
    EXPECT_EQ(row_budget(few, 1.25), 20);
    const RoutingShape shared{
        .members = 4, .tokens = 1000, .experts = 2, .per_token = 1, .expert_tensor = 2};
    EXPECT_EQ(row_budget(shared, 1.25), 2500) << "a choice is a row on two members";
}

// 2 experts on 4 members: a token goes to both members that share its expert, once.
TEST(RoutingPlan, SendsATokenToAllRanksOfItsExpert) {
    const Case c{.shape = {.members = 4,
                           .tokens = 2,
                           .experts = 2,
                           .per_token = 1,
                           .expert_tensor = 2,
                           .budget = 8},
                 .choices = {{0, 1}, {1, 1}, {1, 0}, {1, 1}}};
    EXPECT_EQ(c.shape.own_experts(), 1);
    EXPECT_EQ(c.shape.most_copies(), 2);
    const std::vector<std::vector<int32_t>> sent{{0}, {0}, {1}, {1}};
    EXPECT_EQ(c.plan(0).wave(0).tokens, sent);
    EXPECT_EQ(c.plan(0).wave(0).row_count(), 2);
    EXPECT_EQ(c.plan(1).wave(0).row_count(), 2);
    EXPECT_EQ(c.plan(2).wave(0).row_count(), 6);
    EXPECT_EQ(c.plan(3).wave(0).row_count(), 6);
}

TEST(RoutingPlan, RefusesWhatIsNoPlan) {
    Case c{.shape = {.members = 2, .tokens = 2, .experts = 4, .per_token = 2, .budget = 1},
           .choices = {{0, 1, 2, 3}, {0, 1, 0, 1}}};
    EXPECT_THROW(static_cast<void>(c.plan(0)), UsageError);
    c.shape.budget = 2;
    EXPECT_EQ(c.plan(0).waves(), 3);
    c.choices[1][0] = 4;
    EXPECT_THROW(static_cast<void>(c.plan(0)), UsageError);
    c.choices[1].pop_back();
    EXPECT_THROW(static_cast<void>(c.plan(0)), UsageError);
    c.choices = {{0, 1, 2, 3}, {0, 1, 0, 1}};
    c.shape.expert_tensor = 3;
    EXPECT_THROW(static_cast<void>(c.plan(0)), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
