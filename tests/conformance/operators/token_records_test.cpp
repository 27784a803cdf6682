// SPDX-License-Identifier: Apache-2.0
// Records of tokens, and the statistics that they are made of.
#include "tests/conformance/token_records_problem.hpp"

#include "tests/conformance/operator_test.hpp"

#include <functional>
#include <string>
#include <utility>

namespace vocabpipe::kernels::test {
namespace {

struct RecordsFound {
    Matrix statistics;
    std::vector<float> records;
    std::vector<float> ranks;  ///< label_ranks() of all shards, added up
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
        RecordsFound found{Matrix(0, 0, DType::fp32), {}, {}, {}};
        std::vector<Uploaded> logits;
        std::vector<VocabularyShard> shards;
        int64_t first = 0;
        for (int64_t k = 0; k < count; ++k) {
            const int64_t rows = shard_rows[static_cast<size_t>(k)];
            shards.push_back({.first_row = first, .rows = rows, .vocab_size = problem.vocab()});
            const Uploaded exp_logits = poison(tokens, rows, problem.x.type());
            logits.push_back(poison(tokens, rows, DType::fp32));
            // Several chunks, where a device has them.
            const int64_t asked =
                ops().vocabulary_score_workspace_bytes(tokens, rows, problem.x.type());
            const Workspace space(device(), device().scores_in_chunks() && problem.vocab() > 1000
                                                ? std::min(asked, tokens * 256 * int64_t{4})
                                                : asked);
            const auto words = up(problem.allowed_in(shards.back()));
            options.allowed = all_allowed ? nullptr : words.data();
            ops().vocabulary_score(
                ctx, x, up(rows_of(problem.w, first, rows, 3)), labels, shards.back(), options,
                exp_logits, statistics.view().row_range(k * tokens, tokens), logits.back(), space);
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
            const auto counts = up(std::vector<float>(static_cast<size_t>(tokens), NAN));
            ops().label_ranks(ctx, logits[k], statistics, labels, shards[k], counts);
            found.ranks.resize(static_cast<size_t>(tokens));
            const std::vector<float> counted = counts.download();
            std::ranges::transform(found.ranks, counted, found.ranks.begin(), std::plus<>());
            EXPECT_TRUE(logits[k].download().gaps_are_intact());
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
            for (const TokenRecord record : kAllRecords.list()) {
                const ExpectedRecord& one = expected[static_cast<size_t>(record)];
                const auto at = static_cast<size_t>(kAllRecords.index_of(record) * c.tokens + n);
                EXPECT_NEAR(found.records[at], one.value, one.bound)
                    << c.name << ", " << to_string(record) << " of token " << n;
            }
        }
    }
}

/// (logit descending, id ascending) of all allowed tokens.
std::vector<std::pair<double, int64_t>> ranked(const RecordsProblem& problem, int64_t n) {
    std::vector<std::pair<double, int64_t>> tokens;
    const std::vector<double> z = problem.logits(n, 0, problem.vocab());
    for (int64_t j = 0; j < problem.vocab(); ++j) {
        if (problem.allowed[static_cast<size_t>(j)]) tokens.emplace_back(-z[j], j);
    }
    std::ranges::sort(tokens);
    for (auto& [logit, id] : tokens) logit = -logit;
    return tokens;
}

TEST_P(TokenRecordsOf, RankTheLabelAmongAllTokensInFp64) {
    int tied = 0;
    for (size_t i = 0; i < records_cases().size(); ++i) {
        const RecordsCase& c = records_cases()[i];
        if (c.softcap > 0) continue;  // whose logits fp32 rounds
        const RecordsProblem problem(c, i);
        const RecordsFound found = score(problem, {TokenRecord::loss}, c.shard_rows, ctx());
        for (int64_t n = 0; n < c.tokens; ++n) {
            const int32_t label = problem.labels[static_cast<size_t>(n)];
            const auto tokens = ranked(problem, n);
            const auto at =
                std::ranges::find(tokens, int64_t{label}, &std::pair<double, int64_t>::second);
            const double expected = label < 0 ? 0 : static_cast<double>(at - tokens.begin() + 1);
            EXPECT_EQ(found.ranks[static_cast<size_t>(n)], expected) << c.name << ", token " << n;
            if (label < 0 || at == tokens.begin()) continue;
            tied += (at - 1)->first == at->first;
        }
    }
    EXPECT_GT(tied, 5) << "labels after an equal token";
}

TEST_P(TokenRecordsOf, RankALabelThatIsNotAllowedAfterAllThatAre) {
    const RecordsCase c{.name = "forbidden", .shard_rows = {20, 21}, .allowed_every = 4};
    RecordsProblem problem(c, 3);
    for (const int32_t label : problem.labels) {
        if (label >= 0) problem.allowed[static_cast<size_t>(label)] = false;
    }
    const auto allowed = std::ranges::count(problem.allowed, true);
    const RecordsFound found = score(problem, {TokenRecord::loss}, c.shard_rows, ctx());
    for (size_t n = 0; n < problem.labels.size(); ++n) {
        EXPECT_EQ(found.ranks[n], problem.labels[n] < 0 ? 0 : allowed + 1);
        EXPECT_EQ(found.records[n], problem.labels[n] < 0 ? 0 : INFINITY) << "its loss";
    }
}

TEST_P(TokenRecordsOf, ListTheLikeliestTokensInTheOrderOfFp64) {
    for (size_t i = 0; i < records_cases().size(); ++i) {
        const RecordsCase& c = records_cases()[i];
        const RecordsProblem problem(c, i);
        const int64_t count = std::min<int64_t>(c.vocab(), i % 3 == 0 ? 64 : i % 3 == 1 ? 5 : 33);
        const TokenRecords records =
            TokenRecords::best(count) | TokenRecords{TokenRecord::loss, TokenRecord::logprob};
        const RecordsFound found = score(problem, records, c.shard_rows, ctx());
        const auto number = [&](int64_t row, int64_t n) {
            return found.records[static_cast<size_t>(row * c.tokens + n)];
        };
        const int64_t first = records.index_of(TokenRecord::top_logprobs);
        for (int64_t n = 0; n < c.tokens; ++n) {
            SCOPED_TRACE(std::string(c.name) + ", token " + std::to_string(n));
            const int32_t label = problem.labels[static_cast<size_t>(n)];
            const auto tokens = ranked(problem, n);
            double log_z = 0;
            for (const auto& [logit, id] : tokens) log_z += std::exp(logit - tokens[0].first);
            log_z = std::log(log_z) + tokens[0].first;
            const double bound = expected_records(problem, n)[3].bound;  // of log Z
            for (int64_t k = 0; k < count; ++k) {
                const float id = number(first + count + k, n);
                const float log_p = number(first + k, n);
                if (label < 0 || k >= std::ssize(tokens)) {
                    EXPECT_EQ(id, label < 0 ? 0 : -1);
                    EXPECT_EQ(log_p, label < 0 ? 0 : -INFINITY);
                    continue;
                }
                const auto& [logit, expected] = tokens[static_cast<size_t>(k)];
                if (c.softcap == 0) {
                    EXPECT_EQ(id, static_cast<float>(expected)) << k;
                }
                EXPECT_NEAR(log_p, logit - log_z, 2 * bound) << k;
                if (id == static_cast<float>(label)) {
                    EXPECT_EQ(log_p, number(records.index_of(TokenRecord::logprob), n));
                }
            }
        }
    }
}

TEST_P(TokenRecordsOf, ListTheSameTokensHoweverTheVocabularyIsSharded) {
    const RecordsCase whole{.name = "whole", .shard_rows = {2801}, .tokens = 7, .levels = 3};
    const RecordsProblem problem(whole, 4);
    const TokenRecords records = TokenRecords::best(64) | TokenRecords{TokenRecord::loss};
    const RecordsFound one = score(problem, records, whole.shard_rows, ctx());
    const RecordsFound many = score(problem, records, {1, 0, 700, 2000, 100}, ctx());
    const auto ids = static_cast<ptrdiff_t>((1 + 64) * whole.tokens);
    EXPECT_TRUE(
        std::equal(one.records.begin() + ids, one.records.end(), many.records.begin() + ids));
    EXPECT_EQ(one.ranks, many.ranks);
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
                               exp_logits, statistics, {}, space);
    };
    EXPECT_THROW(score_with(problem.options, narrow), UsageError);
    EXPECT_THROW(ops().combine_statistics(ctx(), wide, labels, up(problem.g), shard, 0,
                                          problem.options, {}, too_few),
                 UsageError);
    EXPECT_THROW(score_with({.temperature = 0}, narrow), UsageError);
    EXPECT_THROW(score_with({.label_smoothing = 0.1F, .temperature = 2}, narrow), UsageError);
    EXPECT_THROW(score_with({.records = {TokenRecord::logprob}}, narrow), UsageError);
    const Uploaded with_list = poison(4, kStatistics + 2 * 65, DType::fp32);
    EXPECT_THROW(score_with({.records = TokenRecords::best(65) | TokenRecords{TokenRecord::loss}},
                            with_list),
                 UsageError);
    const auto counts = up(std::vector<float>(4));
    EXPECT_THROW(
        ops().label_ranks(ctx(), poison(4, 19, DType::fp32), narrow, labels, shard, counts),
        UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, TokenRecordsArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test
