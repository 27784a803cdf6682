// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "kernels/host/operators.hpp"
#include "kernels/reference/operators.hpp"
#include "tests/conformance/vocabulary_oracle.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

// The two implementations, so that one sequence of calls drives either.
#define VOCABPIPE_FORWARD(function)                                                       \
    static auto function(auto&&... arguments) {                                           \
        return VOCABPIPE_ROOM::function(std::forward<decltype(arguments)>(arguments)...); \
    }
#define VOCABPIPE_FORWARD_ALL                                     \
    VOCABPIPE_FORWARD(vocabulary_score_workspace_bytes)           \
    VOCABPIPE_FORWARD(vocabulary_score)                           \
    VOCABPIPE_FORWARD(vocabulary_input_product)                   \
    VOCABPIPE_FORWARD(combine_statistics)                         \
    VOCABPIPE_FORWARD(vocabulary_input_gradient_workspace_bytes)  \
    VOCABPIPE_FORWARD(vocabulary_input_gradient)                  \
    VOCABPIPE_FORWARD(vocabulary_weight_gradient_workspace_bytes) \
    VOCABPIPE_FORWARD(vocabulary_weight_gradient)
#define VOCABPIPE_ROOM reference
struct Reference {
    VOCABPIPE_FORWARD_ALL
};
#undef VOCABPIPE_ROOM
#define VOCABPIPE_ROOM host
struct Host {
    VOCABPIPE_FORWARD_ALL
};

/// When u = e W runs: in T, after the barrier (Algorithm 1), or in S, before it (Algorithm 2).
enum class Order { two_barriers, one_barrier };

struct Mode {
    DType type = DType::fp32;   ///< of the exp_logits; x and w have it already
    DType exact = DType::fp32;  ///< of statistics, factors and gradients
    Order order = Order::one_barrier;
    int threads = 1;
    int64_t gap = 0;  ///< elements between rows
};

/// Everything a sequence of calls over all shards leaves behind.
struct Outputs {
    std::vector<Matrix> exp_logits;
    Matrix statistics;
    std::vector<Matrix> factors;
    Result result;
    int polls = 0;
};

std::vector<std::byte> workspace(int64_t bytes) {
    return std::vector<std::byte>(static_cast<size_t>(bytes), std::byte{0xff});
}

template <typename Kernels>
Outputs run_shards(const Problem& problem, const std::vector<int64_t>& shard_rows,
                   const Mode& run) {
    int polls = 0;
    Context ctx({.threads = run.threads, .poll = [&] { ++polls; }});
    const int64_t tokens = problem.tokens();
    const int64_t hidden = problem.hidden();
    const auto shards = static_cast<int64_t>(shard_rows.size());
    Outputs out{{},
                Matrix(shards * tokens, kStatistics, run.exact, run.gap),
                {},
                {{}, Matrix(tokens, hidden, run.exact), Matrix(problem.vocab(), hidden, run.exact)},
                0};
    std::vector<VocabularyShard> shard;
    std::vector<Matrix> w, u;
    int64_t first = 0;
    for (const int64_t rows : shard_rows) {
        shard.push_back({.first_row = first, .rows = rows, .vocab_size = problem.vocab()});
        w.push_back(rows_of(problem.w, first, rows, run.gap));
        out.exp_logits.emplace_back(tokens, rows, run.type, run.gap);
        out.factors.emplace_back(tokens, 2, run.exact, run.gap);
        u.emplace_back(tokens, hidden, run.exact, run.gap);
        first += rows;
    }
    const auto product = [&](size_t k) {
        Kernels::vocabulary_input_product(ctx, out.exp_logits[k].view(), w[k].view(), u[k].view());
    };
    for (size_t k = 0; k < shard.size(); ++k) {
        auto space =
            workspace(Kernels::vocabulary_score_workspace_bytes(tokens, shard[k].rows, run.type));
        Kernels::vocabulary_score(
            ctx, problem.x.view(), w[k].view(), problem.labels, shard[k], problem.options,
            out.exp_logits[k].view(),
            out.statistics.view().row_range(static_cast<int64_t>(k) * tokens, tokens), Tensor(),
            space);
        if (run.order == Order::one_barrier) product(k);
    }
    std::vector<float> loss(static_cast<size_t>(tokens), NAN);
    for (size_t k = 0; k < shard.size(); ++k) {
        const std::vector<float> before = loss;
        Kernels::combine_statistics(ctx, out.statistics.view(), problem.labels, problem.g, shard[k],
                                    static_cast<int>(k), problem.options, out.factors[k].view(),
                                    loss);
        if (k > 0) {
            EXPECT_EQ(std::memcmp(loss.data(), before.data(), loss.size() * sizeof(float)), 0)
                << "the same bits on every rank";
        }
    }
    // Back to front: the order of the shards must not matter.
    for (size_t k = shard.size(); k-- > 0;) {
        auto space = workspace(
            Kernels::vocabulary_weight_gradient_workspace_bytes(tokens, hidden, run.type));
        Matrix dw(shard[k].rows, hidden, run.exact, run.gap);
        Kernels::vocabulary_weight_gradient(ctx, problem.x.view(), out.exp_logits[k].view(),
                                            out.factors[k].view(), problem.labels, problem.g,
                                            shard[k], problem.options, dw.view(), false, space);
        EXPECT_TRUE(dw.gaps_are_intact());
        for (int64_t j = 0; j < shard[k].rows; ++j) {
            for (int64_t i = 0; i < hidden; ++i) {
                out.result.dw.set(shard[k].first_row + j, i, dw.get(j, i));
            }
        }
        if (run.order == Order::two_barriers) product(k);
        auto sums = workspace(Kernels::vocabulary_input_gradient_workspace_bytes(hidden));
        Kernels::vocabulary_input_gradient(ctx, u[k].view(), out.factors[k].view(), w[k].view(),
                                           problem.labels, problem.g, shard[k], problem.options,
                                           sums);
        EXPECT_TRUE(u[k].gaps_are_intact());
        EXPECT_TRUE(out.exp_logits[k].gaps_are_intact());
    }
    for (int64_t n = 0; n < tokens; ++n) {
        for (int64_t i = 0; i < hidden; ++i) {
            double sum = 0;
            for (const Matrix& part : u) sum += part.get(n, i);
            out.result.dx.set(n, i, sum);
        }
    }
    EXPECT_TRUE(out.statistics.gaps_are_intact());
    out.result.loss.assign(loss.begin(), loss.end());
    if constexpr (std::is_same_v<Kernels, Reference>) {
        reference::token_record(ctx, out.statistics.view(), problem.labels, shard[0],
                                problem.options, TokenRecord::loss, out.result.loss);
    }
    out.polls = polls;
    return out;
}

constexpr Mode kDouble{.type = DType::fp64, .exact = DType::fp64};

class Sharded : public testing::TestWithParam<ShardCase> {};

TEST_P(Sharded, ReferenceReproducesTheUnpartitionedLayer) {
    const ShardCase& c = GetParam();
    const auto problem = random_problem(7, 23, 12, c.vocab(), DType::fp64, c.logit_std, c.options);
    const Result expected = oracle(problem);
    const Result actual = run_shards<Reference>(problem, c.rows, kDouble).result;
    for (size_t n = 0; n < expected.loss.size(); ++n) {
        EXPECT_NEAR(actual.loss[n], expected.loss[n], 1e-12 * (1 + std::abs(expected.loss[n])));
        if (problem.labels[n] < 0) {
            EXPECT_EQ(actual.loss[n], 0);
        }
    }
    EXPECT_LT(relative_error(actual.dx, expected.dx), 1e-12);
    EXPECT_LT(relative_error(actual.dw, expected.dw), 1e-12);
}

TEST_P(Sharded, ReferenceGradientsAreThoseOfItsLossByFiniteDifferences) {
    const ShardCase& c = GetParam();
    Problem problem = random_problem(8, 6, 3, c.vocab(), DType::fp64, c.logit_std, c.options);
    const Result gradients = run_shards<Reference>(problem, c.rows, kDouble).result;
    const auto total = [&] {
        const auto loss = run_shards<Reference>(problem, c.rows, kDouble).result.loss;
        double sum = 0;
        for (size_t n = 0; n < loss.size(); ++n) sum += problem.g[n] * loss[n];
        return sum;
    };
    // Third derivatives (logit slopes up to logit_std cubed) times step^2 / 6, rounding over step.
    const double scale = 1 + c.logit_std * c.logit_std * c.logit_std;
    const double tolerance = scale * 1e-10 + (1 + c.logit_std) * 1e-7;
    const auto bound = [&](int64_t, int64_t) { return tolerance; };
    expect_close(gradients.dx, numeric_gradient(problem.x, total), bound);
    expect_close(gradients.dw, numeric_gradient(problem.w, total), bound);
}

TEST_P(Sharded, HostStaysWithinTheFp32BoundOfTheUnpartitionedLayer) {
    const ShardCase& c = GetParam();
    for (const int64_t gap : {0, 3}) {
        const auto problem =
            random_problem(9, 23, 12, c.vocab(), DType::fp32, c.logit_std, c.options, gap);
        const Result expected = oracle(problem);
        const Bound bound = fp32_bound(problem);
        const Result actual = run_shards<Host>(problem, c.rows, {.gap = gap}).result;
        for (size_t n = 0; n < expected.loss.size(); ++n) {
            EXPECT_NEAR(actual.loss[n], expected.loss[n], bound.loss[n]);
        }
        expect_within(actual.dx, expected.dx, bound.dx);
        expect_within(actual.dw, expected.dw, bound.dw);
    }
}

TEST_P(Sharded, HostInBf16MatchesTheReferenceInBf16) {
    const ShardCase& c = GetParam();
    const auto problem =
        random_problem(10, 23, 12, c.vocab(), DType::bf16, c.logit_std, c.options, 2);
    const Mode run{.type = DType::bf16, .gap = 2};
    const Outputs actual = run_shards<Host>(problem, c.rows, run);
    const Outputs expected = run_shards<Reference>(problem, c.rows, run);
    // Equal but for single exp_logits on the other side of a rounding boundary.
    EXPECT_LT(relative_error(actual.result.dx, expected.result.dx), 3e-4);
    EXPECT_LT(relative_error(actual.result.dw, expected.result.dw), 3e-4);
}

TEST_P(Sharded, BothAlgorithmsGiveTheSameBits) {
    const ShardCase& c = GetParam();
    for (const DType type : {DType::fp32, DType::bf16}) {
        const auto problem = random_problem(11, 23, 12, c.vocab(), type, c.logit_std, c.options);
        const Outputs one = run_shards<Host>(problem, c.rows, {.type = type});
        const Outputs two =
            run_shards<Host>(problem, c.rows, {.type = type, .order = Order::two_barriers});
        EXPECT_TRUE(one.result.dx.same_bits(two.result.dx));
        EXPECT_TRUE(one.result.dw.same_bits(two.result.dw));
        EXPECT_EQ(one.result.loss, two.result.loss);
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, Sharded, testing::ValuesIn(shard_cases()),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(CappedCases, Sharded, testing::ValuesIn(capped_shard_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

struct Errors {
    double dx, dw;
};

TEST(VocabularyInBf16, ConfidentTokensLoseNoMoreThanUncertainOnesUnlikeInTheConventionalForm) {
    constexpr double kLimit = 5e-4;
    const auto rounded = [](double value) {
        return static_cast<double>(to_float(to_bf16(static_cast<float>(value))));
    };
    std::vector<Errors> host;
    for (const double lead : {0.0, 6.0, 12.0, 18.0}) {
        const Problem problem = problem_with_lead(lead);
        const Result exact = oracle(problem);
        const Result actual =
            run_shards<Host>(problem, {512, 512, 512, 512}, {.type = DType::bf16}).result;
        const Result conventional = oracle(problem, rounded);
        host.push_back({relative_error(actual.dx, exact.dx), relative_error(actual.dw, exact.dw)});
        EXPECT_LT(host.back().dx, kLimit) << "lead " << lead;
        EXPECT_LT(host.back().dw, kLimit) << "lead " << lead;
        EXPECT_GT(relative_error(conventional.dx, exact.dx), kLimit) << "lead " << lead;
        EXPECT_GT(relative_error(conventional.dw, exact.dw), kLimit) << "lead " << lead;
        std::printf("lead %4.1f: dX %.2e (conventional %.2e), dW %.2e (conventional %.2e)\n", lead,
                    host.back().dx, relative_error(conventional.dx, exact.dx), host.back().dw,
                    relative_error(conventional.dw, exact.dw));
    }
    // The larger the lead, the fewer other tokens make up the rest, and the less their rounding
    // errors average out; nothing else may grow.
    for (const Errors& errors : host) {
        EXPECT_LT(errors.dx, 4 * host[0].dx);
        EXPECT_LT(errors.dw, 4 * host[0].dw);
    }
}

/// Columns so many that the host needs several tiles of logits.
constexpr int64_t kManyTokens = 128;
constexpr int64_t kManyRows = 20000;

TEST(VocabularyScore, FollowsLogitsThatRiseFarAboveThoseOfTheFirstTile) {
    for (const float cap : {0.0F, 60.0F}) {
        for (const DType type : {DType::fp32, DType::bf16}) {
            Problem problem =
                random_problem(13, kManyTokens, 4, kManyRows, type, 1, {.logit_softcap = cap});
            for (int64_t n = 0; n < kManyTokens; ++n) {
                problem.x.set(n, 0, n % 2 == 0 ? 1.0 : 0.25);
            }
            // Three plateaus: rising by 100 and 50 (capped: 82 and 15) for even tokens, by less
            // than the slack for the others.
            for (int64_t j = 0; j < kManyRows; ++j) {
                problem.w.set(j, 0, j < 7000 ? -50.0 : j < 19000 ? 50.0 : 100.0);
            }
            const Result exact = oracle(problem);
            const Outputs out = run_shards<Host>(problem, {kManyRows}, {.type = type});
            const double limit = type == DType::fp32 ? 1e-5 : 1e-3;
            EXPECT_LT(relative_error(out.result.dx, exact.dx), limit);
            EXPECT_LT(relative_error(out.result.dw, exact.dw), limit);
            for (size_t n = 0; n < exact.loss.size(); ++n) {
                EXPECT_NEAR(out.result.loss[n], exact.loss[n], 1e-4);
            }
            EXPECT_GT(out.polls, 3) << "communication must advance between tiles";
        }
    }
}

TEST(VocabularyScore, TakesMoreTokensThanOneTileHolds) {
    const auto problem = random_problem(21, 4100, 6, 150, DType::fp32, 2, {});
    const Result expected = oracle(problem);
    const Bound bound = fp32_bound(problem);
    const Result actual = run_shards<Host>(problem, {150}, {.threads = 2}).result;
    expect_within(actual.dx, expected.dx, bound.dx);
    expect_within(actual.dw, expected.dw, bound.dw);
}

TEST(VocabularyScore, StoresAnExactZeroForTheLabelAndSumsUnroundedExponentials) {
    for (const LossOptions& options : {LossOptions{}, LossOptions{.logit_softcap = 3}}) {
        for (const DType type : {DType::fp32, DType::bf16}) {
            const Problem problem = random_problem(14, 33, 16, 3000, type, 2, options);
            const Outputs out = run_shards<Host>(problem, {1500, 1500}, {.type = type});
            expect_exact_statistics_of_halves(problem, out.exp_logits, out.statistics);
        }
    }
}

TEST(VocabularyScore, KeepsNotANumberVisible) {
    Problem problem = random_problem(15, 8, 4, 300, DType::fp32, 1, {});
    problem.labels.assign(8, 5);
    problem.w.set(200, 1, NAN);
    const Result result = run_shards<Host>(problem, {150, 150}, {}).result;
    for (const double loss : result.loss) EXPECT_TRUE(std::isnan(loss));
    EXPECT_TRUE(std::isnan(result.dx.get(0, 0)));
}

TEST(VocabularyScore, RefusesALabelBeyondTheVocabulary) {
    Problem problem = random_problem(16, 8, 4, 30, DType::fp32, 1, {});
    problem.labels[3] = 30;
    EXPECT_THROW(run_shards<Host>(problem, {30}, {}), UsageError);
    EXPECT_THROW(run_shards<Reference>(problem, {30}, {}), UsageError);
}

TEST(VocabularyScore, RefusesASoftCapTogetherWithLabelSmoothing) {
    const Problem problem = random_problem(22, 8, 4, 30, DType::fp32, 1,
                                           {.label_smoothing = 0.1F, .logit_softcap = 30});
    EXPECT_THROW(run_shards<Host>(problem, {30}, {}), UsageError);
}

TEST(Vocabulary, BitsDoNotDependOnTheNumberOfThreads) {
    for (const LossOptions& options :
         {LossOptions{.label_smoothing = 0.1F}, LossOptions{.logit_softcap = 5}}) {
        for (const DType type : {DType::fp32, DType::bf16}) {
            const auto problem = random_problem(17, kManyTokens, 96, 9000, type, 2, options);
            const Outputs one = run_shards<Host>(problem, {5000, 4000}, {.type = type});
            const Outputs two =
                run_shards<Host>(problem, {5000, 4000}, {.type = type, .threads = 2});
            for (size_t k = 0; k < 2; ++k) {
                EXPECT_TRUE(one.exp_logits[k].same_bits(two.exp_logits[k]));
            }
            EXPECT_TRUE(one.statistics.same_bits(two.statistics));
            EXPECT_EQ(one.result.loss, two.result.loss);
            EXPECT_TRUE(one.result.dx.same_bits(two.result.dx));
            EXPECT_TRUE(one.result.dw.same_bits(two.result.dw));
        }
    }
}

TEST(Vocabulary, AStepWithoutAnyLabelHasLossAndGradientsOfZero) {
    Problem problem = random_problem(18, 16, 8, 64, DType::fp32, 1, {.label_smoothing = 0.1F});
    problem.labels.assign(16, kIgnoredLabel);
    problem.g.assign(16, 1);  // must not count
    const Result result = run_shards<Host>(problem, {32, 32}, {}).result;
    for (const double loss : result.loss) EXPECT_EQ(loss, 0);
    for (int64_t i = 0; i < 8; ++i) {
        for (int64_t n = 0; n < 16; ++n) EXPECT_EQ(result.dx.get(n, i), 0);
        for (int64_t j = 0; j < 64; ++j) EXPECT_EQ(result.dw.get(j, i), 0);
    }
}

TEST(CombineStatistics, GivesTheSameFactorsWhereNobodyAsksForLosses) {
    const Problem problem = random_problem(25, 16, 8, 64, DType::fp32, 1, {.z_loss = 0.01F});
    const Outputs out = run_shards<Host>(problem, {40, 24}, {});
    Context ctx({.threads = 1, .poll = {}});
    for (const auto combine : {host::combine_statistics, reference::combine_statistics}) {
        std::vector<float> loss(16);
        Matrix with_losses(16, 2, DType::fp32), alone(16, 2, DType::fp32);
        for (const bool losses : {true, false}) {
            combine(ctx, out.statistics.view(), problem.labels, problem.g,
                    {.first_row = 40, .rows = 24, .vocab_size = 64}, 1, problem.options,
                    losses ? with_losses : alone, losses ? std::span(loss) : std::span<float>());
        }
        EXPECT_TRUE(alone.same_bits(with_losses));
    }
}

TEST(VocabularyWeightGradient, AddsToWhatIsThere) {
    const Problem problem =
        random_problem(19, 16, 8, 64, DType::fp32, 1, {.label_smoothing = 0.1F});
    const Outputs out = run_shards<Host>(problem, {64}, {});
    Context ctx({.threads = 1, .poll = {}});
    Matrix dw(64, 8, DType::fp32);
    for (int64_t j = 0; j < 64; ++j) {
        for (int64_t i = 0; i < 8; ++i) dw.set(j, i, static_cast<double>(j));
    }
    auto space = workspace(host::vocabulary_weight_gradient_workspace_bytes(16, 8, DType::fp32));
    host::vocabulary_weight_gradient(ctx, problem.x.view(), out.exp_logits[0].view(),
                                     out.factors[0].view(), problem.labels, problem.g,
                                     {.first_row = 0, .rows = 64, .vocab_size = 64},
                                     problem.options, dw.view(), true, space);
    for (int64_t j = 0; j < 64; ++j) {
        for (int64_t i = 0; i < 8; ++i) {
            EXPECT_NEAR(dw.get(j, i), static_cast<double>(j) + out.result.dw.get(j, i),
                        1e-5 * static_cast<double>(1 + j));
        }
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
