// SPDX-License-Identifier: Apache-2.0
// The output layer on shards of the vocabulary against the unpartitioned one in fp64: within
// fp32_bound(), which holds for any order of the sums and for exponentials that are off by a few
// units in the last place; in bf16 within what the two tensors that are stored in it round.
#include <cstdio>

#include "tests/conformance/host_memory.hpp"
#include "tests/conformance/sharded_vocabulary.hpp"

namespace vocabpipe::kernels::test {
namespace {

class ReferenceVocabulary : public testing::TestWithParam<ShardCase> {
protected:
    [[nodiscard]] Result result(const Problem& problem) {
        return run_shards_on(reference_, reference_.context(), problem, GetParam().rows, kRun)
            .result;
    }
    [[nodiscard]] static Problem problem(uint64_t seed, int64_t tokens, int64_t hidden) {
        const ShardCase& c = GetParam();
        return random_problem(seed, tokens, hidden, c.vocab(), DType::fp64, c.logit_std, c.options);
    }
    static constexpr ShardedRun kRun{.type = DType::fp64, .exact = DType::fp64};

private:
    HostMemory reference_{reference_operators()};
};

TEST_P(ReferenceVocabulary, ReproducesTheUnpartitionedLayer) {
    const Problem of = problem(7, 23, 12);
    const Result expected = oracle(of), actual = result(of);
    for (size_t n = 0; n < expected.loss.size(); ++n) {
        EXPECT_NEAR(actual.loss[n], expected.loss[n], 1e-12 * (1 + std::abs(expected.loss[n])));
        if (of.labels[n] < 0) {
            EXPECT_EQ(actual.loss[n], 0);
        }
    }
    EXPECT_LT(relative_error(actual.dx, expected.dx), 1e-12);
    EXPECT_LT(relative_error(actual.dw, expected.dw), 1e-12);
}

TEST_P(ReferenceVocabulary, GradientsAreThoseOfItsLossByFiniteDifferences) {
    Problem of = problem(8, 6, 3);
    const Result gradients = result(of);
    const auto total = [&] {
        const auto loss = result(of).loss;
        double sum = 0;
        for (size_t n = 0; n < loss.size(); ++n) sum += of.g[n] * loss[n];
        return sum;
    };
    // Third derivatives (logit slopes up to logit_std cubed) times step^2 / 6, rounding over step.
    const double std = GetParam().logit_std;
    const double tolerance = (1 + std * std * std) * 1e-10 + (1 + std) * 1e-7;
    const auto bound = [&](int64_t, int64_t) { return tolerance; };
    expect_close(gradients.dx, numeric_gradient(of.x, total), bound);
    expect_close(gradients.dw, numeric_gradient(of.w, total), bound);
}

INSTANTIATE_TEST_SUITE_P(Cases, ReferenceVocabulary, testing::ValuesIn(shard_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

class ShardedVocabulary : public VocabularyTest<ShardCase> {
protected:
    [[nodiscard]] const ShardCase& shards() const { return parameter<1>(); }
    [[nodiscard]] Problem problem(uint64_t seed, int64_t hidden, DType type, int64_t gap) const {
        const ShardCase& c = shards();
        return random_problem(seed, 23, hidden, c.vocab(), type, c.logit_std, c.options, gap);
    }
};

TEST_P(ShardedVocabulary, StaysWithinTheFp32BoundOfTheUnpartitionedLayer) {
    for (const int64_t gap : {0, 3}) {
        const auto of = problem(9, 12, DType::fp32, gap);
        expect_within_fp32_bound(of, run_shards(of, shards().rows, {.gap = gap}).result);
    }
}

TEST_P(ShardedVocabulary, InBf16RoundsWhereTheReferenceRounds) {
    HostMemory reference(reference_operators());
    for (const int64_t gap : {0, 2}) {
        const auto of = problem(10, gap == 0 ? 16 : 12, DType::bf16, gap);
        const ShardedRun run{.type = DType::bf16, .gap = gap};
        const Result actual = run_shards(of, shards().rows, run).result;
        const Result exact = oracle(of);
        // e is rounded by 2^-9 of each element at most, c x as well; u, dx and dw are fp32. What
        // the roundings of one row have in common cannot exceed that either.
        EXPECT_LT(relative_error(actual.dx, exact.dx), 0x1p-9);
        EXPECT_LT(relative_error(actual.dw, exact.dw), 0x1p-8);
        for (size_t n = 0; n < exact.loss.size(); ++n) {
            EXPECT_NEAR(actual.loss[n], exact.loss[n], 2e-5 * (1 + std::abs(exact.loss[n])));
        }
        // Equal but for single exp_logits on the other side of a rounding boundary, of which a few
        // make up the sums where logits are large.
        const double limit = shards().logit_std > 1 ? 1e-3 : 3e-4;
        const Result rounded =
            run_shards_on(reference, reference.context(), of, shards().rows, run).result;
        EXPECT_LT(relative_error(actual.dx, rounded.dx), limit);
        EXPECT_LT(relative_error(actual.dw, rounded.dw), limit);
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, ShardedVocabulary,
                         testing::Combine(testing::ValuesIn(devices_under_test()),
                                          testing::ValuesIn(shard_cases())),
                         kNames);

using ShardedVocabularyBits = ShardedVocabulary;

TEST_P(ShardedVocabularyBits, AreTheSameWithOneAndWithTwoBarriers) {
    for (const DType type : {DType::fp32, DType::bf16}) {
        const auto of = problem(11, 12, type, 0);
        const Result one = run_shards(of, shards().rows, {.type = type}).result;
        const Result two =
            run_shards(of, shards().rows, {.type = type, .two_barriers = true}).result;
        EXPECT_TRUE(one.dx.same_bits(two.dx));
        EXPECT_TRUE(one.dw.same_bits(two.dw));
        EXPECT_EQ(one.loss, two.loss);
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, ShardedVocabularyBits,
                         testing::Combine(testing::ValuesIn(product_devices()),
                                          testing::ValuesIn(shard_cases())),
                         kNames);

using Vocabulary = VocabularyTest<>;

TEST_P(Vocabulary, TakesOneTokenAndOneRow) {
    for (const LossOptions& options : {LossOptions{}, LossOptions{.label_smoothing = 0.1F}}) {
        for (const int64_t vocab : {1, 2, 5}) {
            const auto problem = random_problem(22, 1, 5, vocab, DType::fp32, 1, options, 1);
            const std::vector<int64_t> shards(static_cast<size_t>(vocab), 1);
            expect_within_fp32_bound(problem, run_shards(problem, shards, {.gap = 1}).result);
        }
    }
}

TEST_P(Vocabulary, AStepWithoutAnyLabelHasLossAndGradientsOfZero) {
    Problem problem = random_problem(18, 16, 8, 64, DType::fp32, 1, {.label_smoothing = 0.1F});
    problem.labels.assign(16, kIgnoredLabel);
    problem.g.assign(16, 1);  // must not count
    const Result result = run_shards(problem, {32, 32}).result;
    for (const double loss : result.loss) EXPECT_EQ(loss, 0);
    for (int64_t i = 0; i < 8; ++i) {
        for (int64_t n = 0; n < 16; ++n) EXPECT_EQ(result.dx.get(n, i), 0);
        for (int64_t j = 0; j < 64; ++j) EXPECT_EQ(result.dw.get(j, i), 0);
    }
}

TEST_P(Vocabulary, KeepsNotANumberVisible) {
    Problem problem = random_problem(15, 8, 4, 300, DType::fp32, 1, {});
    problem.labels.assign(8, 5);
    problem.w.set(200, 1, NAN);
    const Result result = run_shards(problem, {150, 150}).result;
    for (const double loss : result.loss) EXPECT_TRUE(std::isnan(loss));
    EXPECT_TRUE(std::isnan(result.dx.get(0, 0)));
}

TEST_P(Vocabulary, FactorsAndLossesAreTheSameWhereTheOtherOnesAreNotAskedFor) {
    const Problem problem = random_problem(25, 16, 8, 64, DType::fp32, 1, {.z_loss = 0.01F});
    const Uploaded statistics = up(run_shards(problem, {40, 24}).statistics);
    const auto labels = up(problem.labels);
    const auto g = up(problem.g);
    const auto loss = up(std::vector<float>(16, NAN)), alone = up(loss.download());
    const Uploaded factors = poison(16, 2, DType::fp32), no_losses = poison(16, 2, DType::fp32);
    const auto combine = [&](const Tensor& to, std::span<float> losses) {
        ops().combine_statistics(ctx(), statistics, labels, g.span(),
                                 {.first_row = 40, .rows = 24, .vocab_size = 64}, 1,
                                 problem.options, to, losses);
    };
    combine(factors, loss);
    combine(no_losses, {});
    combine({}, alone);
    EXPECT_TRUE(no_losses.download().same_bits(factors.download()));
    EXPECT_EQ(alone.download(), loss.download());
    EXPECT_EQ(loss.download()[4], 0.0F) << "ignored";
}

TEST_P(Vocabulary, WeightGradientAddsToWhatIsThereAndRepeatedLabelsInOrder) {
    // 40 tokens share three labels; all addends are of one sign, so that order and completeness
    // show: each of at most 40 + 40 additions rounds by 2^-24 of a sum below its final value.
    const int64_t tokens = 40, rows = 10, hidden = 9;
    const Matrix x = Matrix::random(tokens, hidden, DType::fp32, 5, 0.5, 1.0);
    const Matrix exp_logits = Matrix::random(tokens, rows, DType::fp32, 6, 0.0, 1.0);
    const Matrix factors = Matrix::random(tokens, 2, DType::fp32, 7, 0.1, 1.0);
    std::vector<int32_t> labels;
    const std::vector<float> g(static_cast<size_t>(tokens), 1.0F);
    for (int32_t n = 0; n < tokens; ++n) {
        labels.push_back(n % 8 == 7 ? kIgnoredLabel : n % 8 == 6 ? 90 : 103 + n % 3);
    }
    const VocabularyShard shard{.first_row = 100, .rows = rows, .vocab_size = 200};
    const Matrix before = Matrix::random(rows, hidden, DType::fp32, 8, 0.0, 1.0);
    const Uploaded dw = up(before);
    const Workspace space(
        device(), ops().vocabulary_weight_gradient_workspace_bytes(tokens, hidden, DType::fp32));
    ops().vocabulary_weight_gradient(ctx(), up(x), up(exp_logits), up(factors), up(labels), up(g),
                                     shard, {}, dw, true, space);
    Matrix expected = before.as(DType::fp64);
    reference::vocabulary_weight_gradient(host, x.as(DType::fp64).view(), exp_logits.view(),
                                          factors.view(), labels, g, shard, {}, expected.view(),
                                          true, {});
    expect_close(dw.download(), expected,
                 [&](int64_t j, int64_t i) { return 84 * kEps32 * std::abs(expected.get(j, i)); });
}

INSTANTIATE_TEST_SUITE_P(Devices, Vocabulary,
                         testing::Combine(testing::ValuesIn(devices_under_test())), kNames);

/// Sizes for which the reference would take long.
using LargeVocabulary = Vocabulary;

TEST_P(LargeVocabulary,
       InBf16ConfidentTokensLoseNoMoreThanUncertainOnesUnlikeInTheConventionalForm) {
    const auto rounded = [](double value) {
        return static_cast<double>(to_float(to_bf16(static_cast<float>(value))));
    };
    double first_dx = 0, first_dw = 0;
    for (const double lead : {0.0, 6.0, 12.0, 18.0}) {
        if (device().slow() && lead != 0 && lead != 12) continue;
        SCOPED_TRACE(testing::Message() << "lead " << lead);
        const Problem problem = problem_with_lead(lead);
        const Result exact = oracle(problem), conventional = oracle(problem, rounded);
        const Result actual =
            run_shards(problem, {512, 512, 512, 512}, {.type = DType::bf16}).result;
        const double dx = relative_error(actual.dx, exact.dx);
        const double dw = relative_error(actual.dw, exact.dw);
        // docs/numerics.md: 1.3e-4 and 1.7e-4 at a lead of 12.
        const double limit = lead <= 12 ? 2.5e-4 : 5e-4;
        EXPECT_LT(dx, limit);
        EXPECT_LT(dw, limit);
        EXPECT_GT(relative_error(conventional.dx, exact.dx), 5e-4);
        EXPECT_GT(relative_error(conventional.dw, exact.dw), 5e-4);
        std::printf("lead %4.1f: dX %.2e (conventional %.2e), dW %.2e (conventional %.2e)\n", lead,
                    dx, relative_error(conventional.dx, exact.dx), dw,
                    relative_error(conventional.dw, exact.dw));
        // The larger the lead, the fewer other tokens make up the rest, and the less their rounding
        // errors average out; nothing else may grow.
        if (lead == 0) {
            first_dx = dx;
            first_dw = dw;
        }
        EXPECT_LE(dx, 4 * first_dx);
        EXPECT_LE(dw, 4 * first_dw);
    }
}

TEST_P(LargeVocabulary, FollowsLogitsThatRiseFarAboveThoseBefore) {
    // Three plateaus: rising by 100 and 50 (capped: 82 and 15) for even tokens, by less than the
    // slack for the others; behind the columns that the reference point comes from, and where a
    // device has chunks, within one and across several.
    struct Sizes {
        int64_t tokens, middle, high, vocab;
    };
    const auto [tokens, middle, high, vocab] =
        device().slow() ? Sizes{6, 2100, 2570, 2600} : Sizes{128, 7000, 19000, 20000};
    for (const float cap : {0.0F, 60.0F}) {
        for (const DType type : {DType::fp32, DType::bf16}) {
            Problem problem = random_problem(13, tokens, 4, vocab, type, 1, {.logit_softcap = cap});
            for (int64_t n = 0; n < tokens; ++n) problem.x.set(n, 0, n % 2 == 0 ? 1.0 : 0.25);
            for (int64_t j = 0; j < vocab; ++j) {
                problem.w.set(j, 0, j < middle ? -50.0 : j < high ? 50.0 : 100.0);
            }
            const Result exact = oracle(problem);
            for (const int64_t chunk_columns : {0, 512}) {
                if (chunk_columns > 0 && !device().scores_in_chunks()) continue;
                SCOPED_TRACE(testing::Message()
                             << "cap " << cap << ", " << name_of(type) << ", " << chunk_columns);
                const Result actual =
                    run_shards(problem, {vocab}, {.type = type, .chunk_columns = chunk_columns})
                        .result;
                const double limit = type == DType::fp32 ? 1e-5 : 1e-3;
                EXPECT_LT(relative_error(actual.dx, exact.dx), limit);
                EXPECT_LT(relative_error(actual.dw, exact.dw), limit);
                for (size_t n = 0; n < exact.loss.size(); ++n) {
                    EXPECT_NEAR(actual.loss[n], exact.loss[n], 1e-4);
                }
            }
        }
    }
}

TEST_P(LargeVocabulary, StoresAnExactZeroForTheLabelAndSumsUnroundedExponentials) {
    for (const LossOptions& options : {LossOptions{}, LossOptions{.logit_softcap = 3}}) {
        for (const DType type : {DType::fp32, DType::bf16}) {
            const Problem problem =
                random_problem(14, device().slow() ? 7 : 33, 16, 3000, type, 2, options);
            const ShardedOutputs out = run_shards(problem, {1500, 1500}, {.type = type});
            expect_exact_statistics_of_halves(problem, out.exp_logits, out.statistics);
        }
    }
}

/// A host needs several tiles of tokens.
TEST_P(LargeVocabulary, TakesManyTokens) {
    if (device().slow()) GTEST_SKIP() << "what is particular to CUDA has tests of its own";
    const auto problem = random_problem(21, 4100, 6, 150, DType::fp32, 2, {});
    for (Context* ctx : device().threads()) {
        expect_within_fp32_bound(problem, run_shards(problem, {150}, {}, *ctx).result);
    }
}

TEST_P(LargeVocabulary, BitsDoNotDependOnThreads) {
    if (device().threads().size() == 1) GTEST_SKIP() << "it has none";
    for (const LossOptions& options :
         {LossOptions{.label_smoothing = 0.1F}, LossOptions{.logit_softcap = 5}}) {
        for (const DType type : {DType::fp32, DType::bf16}) {
            const auto problem = random_problem(17, 128, 96, 9000, type, 2, options);
            expect_same_bits_with_any_threads([&](Context& ctx) {
                const ShardedOutputs out = run_shards(problem, {5000, 4000}, {.type = type}, ctx);
                Matrix loss(1, problem.tokens(), DType::fp32);
                for (int64_t n = 0; n < loss.cols(); ++n) {
                    loss.set(0, n, out.result.loss[static_cast<size_t>(n)]);
                }
                return std::vector{out.exp_logits[0], out.exp_logits[1], out.statistics, loss,
                                   out.result.dx,     out.result.dw};
            });
        }
    }
}

TEST_P(LargeVocabulary, HasNoSoftCapTogetherWithLabelSmoothing) {
    const Problem problem = random_problem(22, 8, 4, 30, DType::fp32, 1,
                                           {.label_smoothing = 0.1F, .logit_softcap = 30});
    EXPECT_THROW((void)run_shards(problem, {30}), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, LargeVocabulary,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test
