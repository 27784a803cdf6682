// SPDX-License-Identifier: Apache-2.0
// Which elements of a tensor its tensor ranks hold, counted one by one.
#include "src/model/tensor_shard.hpp"

#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Indices of ranges, one after the other.
std::vector<int64_t> indices(const std::vector<TensorShard::Range>& ranges) {
    std::vector<int64_t> all;
    for (const TensorShard::Range& range : ranges) {
        for (int64_t i = 0; i < range.count; ++i) all.push_back(range.first + i);
    }
    return all;
}

/// Numbers of a part's elements in the logical tensor, in the order of the part.
std::vector<int64_t> elements(const TensorShard& shard, int64_t logical_columns) {
    std::vector<int64_t> all;
    for (const int64_t row : indices(shard.rows)) {
        for (const int64_t column : indices(shard.columns)) {
            all.push_back(row * logical_columns + column);
        }
    }
    return all;
}

class RandomShape {
public:
    explicit RandomShape(uint32_t seed) : random_(seed) {
        ranks = below(6) + 1;
        parameter.name = "w";
        parameter.cut = std::array{TensorCut::repeated, TensorCut::rows, TensorCut::columns}.at(
            static_cast<size_t>(below(3)));
        int64_t cut = 0;
        const int ranges = below(5);  // 0: the whole at once
        for (int i = 0; i < std::max(1, ranges); ++i) {
            const int64_t range = ranks * (1 + below(4));
            if (ranges > 0) parameter.ranges.push_back(range);
            cut += range;
        }
        parameter.rows = parameter.cut == TensorCut::rows ? cut : 1 + below(7);
        parameter.cols = parameter.cut == TensorCut::columns ? cut : 1 + below(7);
    }

    LogicalParameter parameter;
    int ranks = 1;

private:
    int below(int limit) { return static_cast<int>(random_() % static_cast<uint32_t>(limit)); }
    std::mt19937 random_;
};

TEST(TensorShard, HoldsEveryElementOnceOrOnAllRanks) {
    for (uint32_t seed = 0; seed < 2000; ++seed) {
        const RandomShape shape(seed);
        const LogicalParameter& p = shape.parameter;
        std::vector<int> holders(static_cast<size_t>(p.rows * p.cols));
        for (int rank = 0; rank < shape.ranks; ++rank) {
            const TensorShard shard = tensor_shard(p, {rank, shape.ranks});
            const std::vector<int64_t> held = elements(shard, p.cols);
            ASSERT_TRUE(std::is_sorted(held.begin(), held.end())) << seed;
            ASSERT_EQ(static_cast<int64_t>(held.size()), shard.size()) << seed;
            for (const int64_t element : held) ++holders.at(static_cast<size_t>(element));
        }
        const int expected = p.cut == TensorCut::repeated ? shape.ranks : 1;
        ASSERT_EQ(holders, std::vector<int>(holders.size(), expected)) << seed;
    }
}

TEST(TensorShard, GivesEachRankItsPartOfEveryRange) {
    for (uint32_t seed = 0; seed < 500; ++seed) {
        const RandomShape shape(seed);
        const LogicalParameter& p = shape.parameter;
        if (p.cut == TensorCut::repeated) continue;
        std::vector<int64_t> ranges = p.ranges;
        if (ranges.empty()) ranges.push_back(p.cut == TensorCut::rows ? p.rows : p.cols);
        for (int rank = 0; rank < shape.ranks; ++rank) {
            std::vector<int64_t> expected;
            int64_t begin = 0;
            for (const int64_t range : ranges) {
                for (int64_t i = 0; i < range; ++i) {
                    if (i / (range / shape.ranks) == rank) expected.push_back(begin + i);
                }
                begin += range;
            }
            const TensorShard shard = tensor_shard(p, {rank, shape.ranks});
            const bool by_rows = p.cut == TensorCut::rows;
            ASSERT_EQ(indices(by_rows ? shard.rows : shard.columns), expected) << seed;
        }
    }
}

TEST(TensorShard, IsWalkedInItsOwnOrderAndInLongRuns) {
    for (uint32_t seed = 0; seed < 500; ++seed) {
        const RandomShape shape(seed);
        const LogicalParameter& p = shape.parameter;
        const TensorShard shard = tensor_shard(p, {shape.ranks - 1, shape.ranks});
        const std::vector<int64_t> expected = elements(shard, p.cols);
        std::vector<int64_t> walked;
        for_each_run(shard, p.cols, [&](const ElementRun& run) {
            ASSERT_EQ(run.held, static_cast<int64_t>(walked.size())) << seed;
            for (int64_t i = 0; i < run.count; ++i) walked.push_back(run.logical + i);
        });
        ASSERT_EQ(walked, expected) << seed;
    }
    int runs = 0;
    for_each_run(TensorShard::whole(1000, 30), 30, [&](const ElementRun&) { ++runs; });
    EXPECT_EQ(runs, 1);
}

/// Gate and up of 4 experts of 6 columns, and their down, for 2 groups of 3 ranks.
TEST(TensorShard, GivesRanksThatShareExpertsTheSameColumnsOfEachMatrix) {
    const LogicalParameter gate_up{.name = "gate_up",
                                   .rows = 4 * 2 * 6,
                                   .cols = 5,
                                   .cut = TensorCut::experts,
                                   .expert_cut = TensorCut::rows,
                                   .ranges = std::vector<int64_t>(8, 6)};
    const LogicalParameter down{.name = "down",
                                .rows = 4 * 5,
                                .cols = 6,
                                .cut = TensorCut::experts,
                                .expert_cut = TensorCut::columns};
    for (const LogicalParameter& p : {gate_up, down}) {
        std::vector<int> holders(static_cast<size_t>(p.rows * p.cols));
        for (int rank = 0; rank < 6; ++rank) {
            const TensorShard shard = tensor_shard(p, {rank, 6, 3});
            for (const int64_t element : elements(shard, p.cols)) {
                ++holders.at(static_cast<size_t>(element));
            }
        }
        EXPECT_EQ(holders, std::vector<int>(holders.size(), 1)) << p.name;
    }
    const TensorShard of_gate_up = tensor_shard(gate_up, {4, 6, 3});
    const std::vector<TensorShard::Range> rows{{26, 2}, {32, 2}, {38, 2}, {44, 2}}, all{{0, 5}};
    EXPECT_EQ(of_gate_up.rows, rows);
    EXPECT_EQ(of_gate_up.columns, all);
    const TensorShard of_down = tensor_shard(down, {4, 6, 3});
    const std::vector<TensorShard::Range> experts{{10, 10}}, columns{{2, 2}};
    EXPECT_EQ(of_down.rows, experts);
    EXPECT_EQ(of_down.columns, columns);
    // All experts in one group; and groups of one rank, which have whole experts.
    EXPECT_EQ(tensor_shard(down, {1, 3, 3}).columns, columns);
    const std::vector<TensorShard::Range> two{{24, 24}};
    EXPECT_EQ(tensor_shard(gate_up, {1, 2}).rows, two);
    for (const auto& [place, text] :
         {std::pair(TeamPlace{0, 4, 4},
                    "--expert-tensor-parallel-size 4: 6 columns of down do not "
                    "divide into so many equal parts; use a divisor of them"),
          {TeamPlace{0, 6, 2},
           "--expert-model-parallel-size 3: 20 rows of down do not divide into "
           "so many equal parts; use a divisor of them"}}) {
        try {
            (void)tensor_shard(down, place);
            FAIL();
        } catch (const UsageError& error) {
            EXPECT_STREQ(error.what(), text);
        }
    }
}

TEST(TensorShard, SharesRowsOfTheVocabularyThatDoNotDivide) {
    for (const int64_t rows : {0, 1, 3, 30, 31}) {
        for (const int ranks : {1, 2, 4, 7}) {
            int64_t next = 5;
            for (int rank = 0; rank < ranks; ++rank) {
                const TensorShard shard = row_shard({5, rows}, 8, {rank, ranks});
                ASSERT_EQ(shard.rows.size(), 1U);
                EXPECT_EQ(shard.rows.front().first, next);
                EXPECT_LE(shard.row_count(), largest_part(rows, ranks));
                EXPECT_EQ(shard.column_count(), 8);
                next += shard.row_count();
            }
            EXPECT_EQ(next, 5 + rows);
        }
    }
}

TEST(TensorShard, RefusesWhatDoesNotDivide) {
    LogicalParameter p{.name = "h.0.qkv.bias", .rows = 1, .cols = 20};
    p.cut = TensorCut::columns;
    p.ranges = {12, 8};
    EXPECT_NO_THROW((void)tensor_shard(p, {0, 4}));
    try {
        (void)tensor_shard(p, {0, 3});
        FAIL();
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("--tensor-model-parallel-size 3"),
                                        HasSubstr("8 columns of h.0.qkv.bias")));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
