// SPDX-License-Identifier: Apache-2.0
// The two largest logits among the statistics, and the margins that are made of them.
#include "tests/kernels/top_two_problem.hpp"

#include "kernels/host/operators.hpp"
#include "kernels/reference/operators.hpp"
#include "vocabpipe/error.hpp"

#include <cstring>
#include <string>

namespace vocabpipe::kernels::test {
namespace {

struct ScoreFunctions {
    FunctionOf<&Operators::vocabulary_score_workspace_bytes>* workspace_bytes;
    FunctionOf<&Operators::vocabulary_score>* score;
    FunctionOf<&Operators::combine_statistics>* combine;
};
constexpr ScoreFunctions kHostScore{host::vocabulary_score_workspace_bytes, host::vocabulary_score,
                                    host::combine_statistics};
constexpr ScoreFunctions kReferenceScore{reference::vocabulary_score_workspace_bytes,
                                         reference::vocabulary_score,
                                         reference::combine_statistics};

struct TopTwoFound {
    Matrix statistics;
    std::vector<float> losses;
    std::vector<Matrix> exp_logits;
};

TopTwoFound score_shards(const ScoreFunctions& f, const Problem& problem,
                         const std::vector<int64_t>& shard_rows, int threads = 1) {
    Context ctx({.threads = threads, .poll = [] {}});
    const int64_t tokens = problem.tokens();
    const auto shards = static_cast<int64_t>(shard_rows.size());
    const int64_t columns = statistics_columns(problem.options);
    TopTwoFound found{Matrix(shards * tokens, columns, DType::fp32), {}, {}};
    std::vector<VocabularyShard> parts;
    int64_t first = 0;
    for (int64_t k = 0; k < shards; ++k) {
        const int64_t rows = shard_rows[static_cast<size_t>(k)];
        parts.push_back({.first_row = first, .rows = rows, .vocab_size = problem.vocab()});
        const Matrix w = rows_of(problem.w, first, rows, 3);
        found.exp_logits.emplace_back(tokens, rows, problem.x.type());
        std::vector<std::byte> space(
            static_cast<size_t>(f.workspace_bytes(tokens, rows, problem.x.type())),
            std::byte{0xff});
        f.score(ctx, problem.x.view(), w.view(), problem.labels, parts.back(), problem.options,
                found.exp_logits.back().view(),
                found.statistics.view().row_range(k * tokens, tokens), space);
        first += rows;
    }
    EXPECT_TRUE(found.statistics.gaps_are_intact());
    for (int64_t k = 0; k < shards; ++k) {
        std::vector<float> losses(
            static_cast<size_t>(problem.options.top_two ? 2 * tokens : tokens), NAN);
        f.combine(ctx, found.statistics.view(), problem.labels, problem.g,
                  parts[static_cast<size_t>(k)], static_cast<int>(k), problem.options, {}, losses);
        if (k > 0) {
            EXPECT_EQ(losses, found.losses) << "the same bits on every rank";
        }
        found.losses = losses;
    }
    return found;
}

void expect_same_bits(const Matrix& a, const Matrix& b, int64_t columns) {
    for (int64_t row = 0; row < a.rows(); ++row) {
        for (int64_t col = 0; col < columns; ++col) {
            ASSERT_EQ(a.get(row, col), b.get(row, col)) << row << ", " << col;
        }
    }
}

void check_cases(const ScoreFunctions& f) {
    for (size_t i = 0; i < top_two_cases().size(); ++i) {
        SCOPED_TRACE("case " + std::to_string(i));
        const TopTwoCase& c = top_two_cases()[i];
        int64_t vocab = 0;
        for (const int64_t rows : c.shard_rows) vocab += rows;
        Problem problem = exact_problem(i, c.tokens, 12, vocab, c.type, c.levels, c.softcap);
        const TopTwoFound found = score_shards(f, problem, c.shard_rows);
        expect_top_two(problem, c.shard_rows, found.statistics, found.losses);

        // Nothing else changes.
        problem.options.top_two = false;
        const TopTwoFound plain = score_shards(f, problem, c.shard_rows);
        expect_same_bits(plain.statistics, found.statistics, kStatistics);
        for (size_t n = 0; n < plain.losses.size(); ++n) {
            EXPECT_EQ(plain.losses[n], found.losses[n]);
        }
        for (size_t k = 0; k < plain.exp_logits.size(); ++k) {
            expect_same_bits(plain.exp_logits[k], found.exp_logits[k], plain.exp_logits[k].cols());
        }
    }
}

TEST(TopTwo, AreThoseOfSortedLogitsOnTheHost) {
    check_cases(kHostScore);
}

TEST(TopTwo, AreThoseOfSortedLogitsInTheReference) {
    check_cases(kReferenceScore);
}

TEST(TopTwo, DoNotDependOnThreadsOrShards) {
    const Problem problem = exact_problem(3, 40, 16, 700, DType::fp32, 9, 0);
    const TopTwoFound one = score_shards(kHostScore, problem, {700});
    const TopTwoFound threads = score_shards(kHostScore, problem, {700}, 3);
    EXPECT_EQ(one.losses, threads.losses);
    expect_same_bits(one.statistics, threads.statistics, kStatisticsWithTopTwo);
}

TEST(TopTwo, NeedTheirColumns) {
    Problem problem = exact_problem(3, 4, 8, 20, DType::fp32, 9, 0);
    Context ctx({.threads = 1, .poll = [] {}});
    Matrix narrow(4, kStatistics, DType::fp32);
    Matrix exp_logits(4, 20, DType::fp32);
    std::vector<std::byte> space(1 << 16);
    const VocabularyShard shard{.first_row = 0, .rows = 20, .vocab_size = 20};
    EXPECT_THROW(
        host::vocabulary_score(ctx, problem.x.view(), problem.w.view(), problem.labels, shard,
                               problem.options, exp_logits.view(), narrow.view(), space),
        UsageError);
    std::vector<float> losses(4);
    Matrix wide(4, kStatisticsWithTopTwo, DType::fp32);
    EXPECT_THROW(host::combine_statistics(ctx, wide.view(), problem.labels, problem.g, shard, 0,
                                          problem.options, {}, losses),
                 UsageError);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
