// SPDX-License-Identifier: Apache-2.0
// Records of tokens, and the statistics that they are made of.
#include "tests/kernels/token_records_problem.hpp"

#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct RecordsFound {
    Matrix statistics;
    std::vector<float> records;
    std::vector<Matrix> exp_logits;
};

class TokenRecordsOf : public OperatorTest<> {
protected:
    [[nodiscard]] RecordsFound score(const RecordsProblem& problem, const TokenRecords& records,
                                     const std::vector<int64_t>& shard_rows, Context& ctx) const {
        const int64_t tokens = problem.tokens();
        const auto count = static_cast<int64_t>(shard_rows.size());
        const bool all_allowed = std::ranges::find(problem.allowed, false) == problem.allowed.end();
        const Uploaded x = up(problem.x);
        const auto labels = up(problem.labels);
        const auto g = up(problem.g);
        LossOptions options = problem.options;
        options.records = records;
        const Uploaded statistics =
            poison(count * tokens, statistics_columns(records), DType::fp32);
        RecordsFound found{Matrix(0, 0, DType::fp32), {}, {}};
        std::vector<VocabularyShard> shards;
        int64_t first = 0;
        for (int64_t k = 0; k < count; ++k) {
            const int64_t rows = shard_rows[static_cast<size_t>(k)];
            shards.push_back({.first_row = first, .rows = rows, .vocab_size = problem.vocab()});
            const Uploaded exp_logits = poison(tokens, rows, problem.x.type());
            // Several chunks, where a device has them.
            const int64_t asked =
                ops().vocabulary_score_workspace_bytes(tokens, rows, problem.x.type());
            const Workspace space(device(), device().scores_in_chunks() && problem.vocab() > 1000
                                                ? std::min(asked, tokens * 256 * int64_t{4})
                                                : asked);
            const auto words = up(problem.allowed_in(shards.back()));
            options.allowed = all_allowed ? nullptr : words.data();
            ops().vocabulary_score(ctx, x, up(rows_of(problem.w, first, rows, 3)), labels,
                                   shards.back(), options, exp_logits,
                                   statistics.view().row_range(k * tokens, tokens), space);
            found.exp_logits.push_back(exp_logits.download());
            first += rows;
        }
        options.allowed = nullptr;
        found.statistics = statistics.download();
        EXPECT_TRUE(found.statistics.gaps_are_intact());
        for (size_t k = 0; k < shards.size(); ++k) {
            const auto made =
                up(std::vector<float>(static_cast<size_t>(records.size() * tokens), NAN));
            ops().combine_statistics(ctx, statistics, labels, g, shards[k], static_cast<int>(k),
                                     options, {}, made);
            const std::vector<float> here = made.download();
            if (k > 0) {
                EXPECT_EQ(here, found.records) << "the same bits on every rank";
            }
            found.records = here;
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

TEST_P(TokenRecordsOf, AreThoseOfTextbookFormulasInFp64) {
    for (size_t i = 0; i < records_cases().size(); ++i) {
        const RecordsCase& c = records_cases()[i];
        const RecordsProblem problem(c, i);
        const RecordsFound found = score(problem, kAllRecords, c.shard_rows, ctx());
        for (int64_t n = 0; n < c.tokens; ++n) {
            const auto expected = expected_records(problem, n);
            for (const TokenRecord record : kEveryTokenRecord) {
                const ExpectedRecord& one = expected[static_cast<size_t>(record)];
                const auto at = static_cast<size_t>(kAllRecords.index_of(record) * c.tokens + n);
                EXPECT_NEAR(found.records[at], one.value, one.bound)
                    << c.name << ", " << to_string(record) << " of token " << n;
            }
        }
    }
}

TEST_P(TokenRecordsOf, ChangeNeitherTheLossNorWhatTrainingReads) {
    for (const size_t i : {3U, 5U, 7U, 10U, 17U}) {
        const RecordsCase& c = records_cases()[i];
        SCOPED_TRACE(c.name);
        const RecordsProblem problem(c, i);
        const RecordsFound found = score(problem, kAllRecords, c.shard_rows, ctx());
        const RecordsFound plain = score(problem, {TokenRecord::loss}, c.shard_rows, ctx());
        expect_equal(plain.statistics, found.statistics, kStatistics);
        for (size_t n = 0; n < plain.records.size(); ++n) {
            EXPECT_EQ(plain.records[n], found.records[n]);
        }
        for (size_t k = 0; k < plain.exp_logits.size(); ++k) {
            expect_equal(plain.exp_logits[k], found.exp_logits[k], plain.exp_logits[k].cols());
        }
    }
}

TEST_P(TokenRecordsOf, HaveAMarginOfExactlyZeroWhereTheBestTwoAreEqual) {
    const RecordsCase& ties = records_cases()[4];
    const RecordsProblem problem(ties, 4);
    const RecordsFound found = score(problem, kAllRecords, ties.shard_rows, ctx());
    int equal = 0;
    for (int64_t n = 0; n < ties.tokens; ++n) {
        std::vector<double> z = problem.logits(n, 0, problem.vocab());
        std::ranges::sort(z, std::greater<>());
        if (z[0] != z[1]) continue;
        ++equal;
        const int64_t margins = kAllRecords.index_of(TokenRecord::margin) * ties.tokens;
        EXPECT_EQ(found.records[static_cast<size_t>(margins + n)], 0);
    }
    EXPECT_GT(equal, 0);
}

TEST_P(TokenRecordsOf, StoreExactZerosOfForbiddenTokens) {
    for (const RecordsCase& c : records_cases()) {
        if (c.allowed_every == 0) continue;
        const RecordsProblem problem(c, 5);
        const RecordsFound found = score(problem, kAllRecords, c.shard_rows, ctx());
        int64_t first = 0;
        for (const Matrix& e : found.exp_logits) {
            for (int64_t n = 0; n < c.tokens; ++n) {
                for (int64_t j = 0; j < e.cols(); ++j) {
                    if (problem.allowed[static_cast<size_t>(first + j)]) continue;
                    ASSERT_EQ(e.get(n, j), 0) << c.name << ", token " << n << ", row " << j;
                }
            }
            first += e.cols();
        }
    }
}

TEST_P(TokenRecordsOf, DoNotDependOnThreads) {
    const RecordsCase c{.name = "threads", .shard_rows = {700}, .tokens = 40};
    const RecordsProblem problem(c, 3);
    const RecordsFound usual = score(problem, kAllRecords, c.shard_rows, ctx());
    for (Context* other : device().threads()) {
        if (other == &ctx()) continue;
        const RecordsFound found = score(problem, kAllRecords, c.shard_rows, *other);
        EXPECT_EQ(found.records, usual.records);
        expect_equal(found.statistics, usual.statistics, statistics_columns(kAllRecords));
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, TokenRecordsOf,
                         testing::Combine(testing::ValuesIn(devices_under_test())), kNames);

using TokenRecordsArguments = OperatorTest<>;

TEST_P(TokenRecordsArguments, NeedTheirColumns) {
    const RecordsCase c{.name = "arguments", .shard_rows = {20}, .tokens = 4};
    const RecordsProblem problem(c, 3);
    const Uploaded narrow = poison(4, kStatistics, DType::fp32);
    const Uploaded wide = poison(4, statistics_columns(kAllRecords), DType::fp32);
    const Uploaded exp_logits = poison(4, 20, DType::fp32);
    const Workspace space(device(), 1 << 16);
    const auto labels = up(problem.labels);
    const auto too_few = up(std::vector<float>(4));
    const VocabularyShard shard{.first_row = 0, .rows = 20, .vocab_size = 20};
    const auto score_with = [&](const LossOptions& options, const Uploaded& statistics) {
        ops().vocabulary_score(ctx(), up(problem.x), up(problem.w), labels, shard, options,
                               exp_logits, statistics, space);
    };
    EXPECT_THROW(score_with(problem.options, narrow), UsageError);
    EXPECT_THROW(ops().combine_statistics(ctx(), wide, labels, up(problem.g), shard, 0,
                                          problem.options, {}, too_few),
                 UsageError);
    EXPECT_THROW(score_with({.temperature = 0}, narrow), UsageError);
    EXPECT_THROW(score_with({.label_smoothing = 0.1F, .temperature = 2}, narrow), UsageError);
    EXPECT_THROW(score_with({.records = {TokenRecord::logprob}}, narrow), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, TokenRecordsArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test
