// SPDX-License-Identifier: Apache-2.0
// The two largest logits among the statistics, and the margins that are made of them.
#include "tests/kernels/top_two_problem.hpp"

#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct TopTwoFound {
    Matrix statistics;
    std::vector<float> losses;
    std::vector<Matrix> exp_logits;
};

class TopTwo : public OperatorTest<> {
protected:
    /// `chunk_columns` > 0: a workspace that holds so many columns of logits in fp32.
    [[nodiscard]] TopTwoFound score(const Problem& problem, const std::vector<int64_t>& shard_rows,
                                    Context& ctx, int64_t chunk_columns = 0) const {
        const int64_t tokens = problem.tokens();
        const auto count = static_cast<int64_t>(shard_rows.size());
        const Uploaded x = up(problem.x);
        const auto labels = up(problem.labels);
        const auto g = up(problem.g);
        const Uploaded statistics =
            poison(count * tokens, statistics_columns(problem.options), DType::fp32);
        TopTwoFound found{Matrix(0, 0, DType::fp32), {}, {}};
        std::vector<VocabularyShard> shards;
        int64_t first = 0;
        for (int64_t k = 0; k < count; ++k) {
            const int64_t rows = shard_rows[static_cast<size_t>(k)];
            shards.push_back({.first_row = first, .rows = rows, .vocab_size = problem.vocab()});
            const Uploaded exp_logits = poison(tokens, rows, problem.x.type());
            const int64_t asked =
                ops().vocabulary_score_workspace_bytes(tokens, rows, problem.x.type());
            const Workspace space(device(), device().scores_in_chunks() && chunk_columns > 0
                                                ? std::min(asked, tokens * chunk_columns * 4)
                                                : asked);
            ops().vocabulary_score(ctx, x, up(rows_of(problem.w, first, rows, 3)), labels,
                                   shards.back(), problem.options, exp_logits,
                                   statistics.view().row_range(k * tokens, tokens), space);
            found.exp_logits.push_back(exp_logits.download());
            first += rows;
        }
        found.statistics = statistics.download();
        EXPECT_TRUE(found.statistics.gaps_are_intact());
        for (size_t k = 0; k < shards.size(); ++k) {
            const auto losses = up(std::vector<float>(
                static_cast<size_t>(problem.options.top_two ? 2 * tokens : tokens), NAN));
            ops().combine_statistics(ctx, statistics, labels, g, shards[k], static_cast<int>(k),
                                     problem.options, {}, losses);
            const std::vector<float> here = losses.download();
            if (k > 0) {
                EXPECT_EQ(here, found.losses) << "the same bits on every rank";
            }
            found.losses = here;
        }
        return found;
    }
};

void expect_equal(const Matrix& a, const Matrix& b, int64_t columns) {
    for (int64_t row = 0; row < a.rows(); ++row) {
        for (int64_t col = 0; col < columns; ++col) {
            ASSERT_EQ(a.get(row, col), b.get(row, col)) << row << ", " << col;
        }
    }
}

TEST_P(TopTwo, AreThoseOfSortedLogits) {
    for (size_t i = 0; i < top_two_cases().size(); ++i) {
        SCOPED_TRACE("case " + std::to_string(i));
        const TopTwoCase& c = top_two_cases()[i];
        int64_t vocab = 0;
        for (const int64_t rows : c.shard_rows) vocab += rows;
        const int64_t chunk = vocab > 1000 ? 256 : 0;
        Problem problem = exact_problem(i, c.tokens, 12, vocab, c.type, c.levels, c.softcap);
        const TopTwoFound found = score(problem, c.shard_rows, ctx(), chunk);
        expect_top_two(problem, c.shard_rows, found.statistics, found.losses);

        // Nothing else changes.
        problem.options.top_two = false;
        const TopTwoFound plain = score(problem, c.shard_rows, ctx(), chunk);
        expect_equal(plain.statistics, found.statistics, kStatistics);
        for (size_t n = 0; n < plain.losses.size(); ++n) {
            EXPECT_EQ(plain.losses[n], found.losses[n]);
        }
        for (size_t k = 0; k < plain.exp_logits.size(); ++k) {
            expect_equal(plain.exp_logits[k], found.exp_logits[k], plain.exp_logits[k].cols());
        }
    }
}

TEST_P(TopTwo, DoNotDependOnThreads) {
    const Problem problem = exact_problem(3, 40, 16, 700, DType::fp32, 9, 0);
    const TopTwoFound usual = score(problem, {700}, ctx());
    for (Context* other : device().threads()) {
        if (other == &ctx()) continue;
        const TopTwoFound found = score(problem, {700}, *other);
        EXPECT_EQ(found.losses, usual.losses);
        expect_equal(found.statistics, usual.statistics, kStatisticsWithTopTwo);
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, TopTwo, testing::Combine(testing::ValuesIn(devices_under_test())),
                         kNames);

using TopTwoArguments = OperatorTest<>;

TEST_P(TopTwoArguments, NeedTheirColumns) {
    const Problem problem = exact_problem(3, 4, 8, 20, DType::fp32, 9, 0);
    const Uploaded narrow = poison(4, kStatistics, DType::fp32);
    const Uploaded wide = poison(4, kStatisticsWithTopTwo, DType::fp32);
    const Uploaded exp_logits = poison(4, 20, DType::fp32);
    const Workspace space(device(), 1 << 16);
    const auto labels = up(problem.labels);
    const auto losses = up(std::vector<float>(4));
    const VocabularyShard shard{.first_row = 0, .rows = 20, .vocab_size = 20};
    EXPECT_THROW(ops().vocabulary_score(ctx(), up(problem.x), up(problem.w), labels, shard,
                                        problem.options, exp_logits, narrow, space),
                 UsageError);
    EXPECT_THROW(ops().combine_statistics(ctx(), wide, labels, up(problem.g), shard, 0,
                                          problem.options, {}, losses),
                 UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, TopTwoArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test
