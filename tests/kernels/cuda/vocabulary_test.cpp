// SPDX-License-Identifier: Apache-2.0
// The output layer on the device against the unpartitioned one in fp64. Bounds: fp32_bound() of
// tests/conformance/vocabulary_oracle.hpp holds for any order of the sums and for exponentials that
// are off by a few units in the last place. In bf16 all operators round where the reference kernels
// do, and bounds follow from the two tensors that are stored in it.
#include "kernels/cuda/operators.hpp"

#include "kernels/host/operators.hpp"
#include "tests/conformance/vocabulary_oracle.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct Mode {
    DType type = DType::fp32;
    bool two_barriers = false;
    int64_t gap = 0;            ///< elements between rows
    int64_t chunk_columns = 0;  ///< of logits at a time; 0: as many as the operator asks for
    int64_t piece_rows = 0;     ///< tokens that S takes at a time; 0: all
};

struct Outputs {
    std::vector<Matrix> exp_logits;
    Matrix statistics;
    std::vector<Matrix> factors;
    Result result;
};

DeviceBytes workspace_for_score(int64_t tokens, int64_t rows, const Mode& mode) {
    const int64_t asked = cuda::vocabulary_score_workspace_bytes(tokens, rows, mode.type);
    const int64_t chunk = tokens * mode.chunk_columns * size_of(DType::fp32);
    return DeviceBytes(
        static_cast<size_t>(mode.chunk_columns > 0 ? std::min(asked, chunk) : asked));
}

/// All shards in turn, as one rank each would compute them.
Outputs run_shards(const Problem& problem, const std::vector<int64_t>& shard_rows,
                   const Mode& mode) {
    Device device;
    Context& ctx = device.context();
    const int64_t tokens = problem.tokens();
    const int64_t hidden = problem.hidden();
    const DeviceMatrix x(device, problem.x);
    const DeviceArray<int32_t> labels(device, problem.labels);
    const DeviceArray<float> g(device, problem.g);
    const DeviceMatrix statistics(device, Matrix(static_cast<int64_t>(shard_rows.size()) * tokens,
                                                 kStatistics, DType::fp32, mode.gap));
    std::vector<VocabularyShard> shards;
    std::vector<DeviceMatrix> w, exp_logits, u, factors;
    int64_t first = 0;
    for (const int64_t rows : shard_rows) {
        shards.push_back({.first_row = first, .rows = rows, .vocab_size = problem.vocab()});
        w.emplace_back(device, rows_of(problem.w, first, rows, mode.gap));
        exp_logits.emplace_back(device, Matrix(tokens, rows, mode.type, mode.gap));
        factors.emplace_back(device, Matrix(tokens, 2, DType::fp32, mode.gap));
        u.emplace_back(device, Matrix(tokens, hidden, DType::fp32, mode.gap));
        first += rows;
    }
    for (size_t k = 0; k < shards.size(); ++k) {
        const DeviceBytes space = workspace_for_score(tokens, shards[k].rows, mode);
        const int64_t piece = mode.piece_rows > 0 ? mode.piece_rows : tokens;
        ctx.take_part_of(mode.piece_rows > 0 ? tokens : 0);
        for (int64_t begin = 0; begin < tokens; begin += piece) {
            const int64_t count = std::min(piece, tokens - begin);
            cuda::vocabulary_score(
                ctx, static_cast<ConstTensor>(x).row_range(begin, count), w[k],
                labels.span().subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
                shards[k], problem.options, exp_logits[k].view().row_range(begin, count),
                statistics.view().row_range(static_cast<int64_t>(k) * tokens + begin, count), {},
                space);
        }
        ctx.take_part_of(0);
        if (!mode.two_barriers) cuda::vocabulary_input_product(ctx, exp_logits[k], w[k], u[k]);
        device.finish();
    }
    Outputs out{
        {},
        statistics.download(),
        {},
        {{}, Matrix(tokens, hidden, DType::fp32), Matrix(problem.vocab(), hidden, DType::fp32)}};
    std::vector<float> loss;
    for (size_t k = 0; k < shards.size(); ++k) {
        const DeviceArray<float> losses(device,
                                        std::vector<float>(static_cast<size_t>(tokens), NAN));
        cuda::combine_statistics(ctx, statistics, labels, g, shards[k], static_cast<int>(k),
                                 problem.options, factors[k], losses);
        const std::vector<float> here = losses.download();
        if (k == 0) loss = here;
        EXPECT_EQ(std::memcmp(loss.data(), here.data(), loss.size() * sizeof(float)), 0)
            << "the same bits on every rank";
    }
    out.result.loss.assign(loss.begin(), loss.end());
    for (size_t k = shards.size(); k-- > 0;) {
        const DeviceBytes space(static_cast<size_t>(
            cuda::vocabulary_weight_gradient_workspace_bytes(tokens, hidden, mode.type)));
        const DeviceMatrix dw(device, Matrix(shards[k].rows, hidden, DType::fp32, mode.gap));
        cuda::vocabulary_weight_gradient(ctx, x, exp_logits[k], factors[k], labels, g, shards[k],
                                         problem.options, dw, false, space);
        const Matrix rows = dw.download();
        EXPECT_TRUE(rows.gaps_are_intact());
        for (int64_t j = 0; j < shards[k].rows; ++j) {
            for (int64_t i = 0; i < hidden; ++i) {
                out.result.dw.set(shards[k].first_row + j, i, rows.get(j, i));
            }
        }
        if (mode.two_barriers) cuda::vocabulary_input_product(ctx, exp_logits[k], w[k], u[k]);
        const DeviceBytes sums(
            static_cast<size_t>(cuda::vocabulary_input_gradient_workspace_bytes(hidden)));
        cuda::vocabulary_input_gradient(ctx, u[k], factors[k], w[k], labels, g, shards[k],
                                        problem.options, sums);
        device.finish();
    }
    std::vector<double> dx(static_cast<size_t>(tokens * hidden));
    for (size_t k = 0; k < shards.size(); ++k) {
        const Matrix part = u[k].download();
        EXPECT_TRUE(part.gaps_are_intact());
        for (int64_t n = 0; n < tokens; ++n) {
            for (int64_t i = 0; i < hidden; ++i) {
                dx[static_cast<size_t>(n * hidden + i)] += part.get(n, i);
                out.result.dx.set(n, i, dx[static_cast<size_t>(n * hidden + i)]);
            }
        }
        out.exp_logits.push_back(exp_logits[k].download());
        out.factors.push_back(factors[k].download());
        EXPECT_TRUE(out.exp_logits[k].gaps_are_intact());
        EXPECT_TRUE(out.factors[k].gaps_are_intact());
    }
    EXPECT_TRUE(out.statistics.gaps_are_intact());
    return out;
}

void expect_within_fp32_bound(const Problem& problem, const Result& actual) {
    const Result expected = oracle(problem);
    const Bound bound = fp32_bound(problem);
    for (size_t n = 0; n < expected.loss.size(); ++n) {
        EXPECT_NEAR(actual.loss[n], expected.loss[n], bound.loss[n]);
    }
    expect_within(actual.dx, expected.dx, bound.dx);
    expect_within(actual.dw, expected.dw, bound.dw);
}

class Sharded : public OnDeviceWithParam<ShardCase> {};

TEST_P(Sharded, StaysWithinTheFp32BoundOfTheUnpartitionedLayer) {
    const ShardCase& c = GetParam();
    for (const int64_t gap : {0, 3}) {
        const auto problem =
            random_problem(9, 23, 12, c.vocab(), DType::fp32, c.logit_std, c.options, gap);
        expect_within_fp32_bound(problem, run_shards(problem, c.rows, {.gap = gap}).result);
    }
}

TEST_P(Sharded, InBf16RoundsWhereTheReferenceRounds) {
    const ShardCase& c = GetParam();
    for (const int64_t gap : {0, 2}) {
        const auto problem =
            random_problem(10, 23, 16, c.vocab(), DType::bf16, c.logit_std, c.options, gap);
        const Result actual = run_shards(problem, c.rows, {.type = DType::bf16, .gap = gap}).result;
        const Result exact = oracle(problem);
        // e is rounded by 2^-9 of each element at most, c x as well; u, dx and dw are fp32. What
        // the roundings of one row have in common cannot exceed that either.
        EXPECT_LT(relative_error(actual.dx, exact.dx), 0x1p-9);
        EXPECT_LT(relative_error(actual.dw, exact.dw), 0x1p-8);
        for (size_t n = 0; n < exact.loss.size(); ++n) {
            EXPECT_NEAR(actual.loss[n], exact.loss[n], 2e-5 * (1 + std::abs(exact.loss[n])));
        }
    }
}

TEST_P(Sharded, GivesTheSameBitsWithOneAndWithTwoBarriers) {
    const ShardCase& c = GetParam();
    for (const DType type : {DType::fp32, DType::bf16}) {
        const auto problem = random_problem(11, 23, 12, c.vocab(), type, c.logit_std, c.options);
        const Outputs one = run_shards(problem, c.rows, {.type = type});
        const Outputs two = run_shards(problem, c.rows, {.type = type, .two_barriers = true});
        EXPECT_TRUE(one.result.dx.same_bits(two.result.dx));
        EXPECT_TRUE(one.result.dw.same_bits(two.result.dw));
        EXPECT_EQ(one.result.loss, two.result.loss);
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, Sharded, testing::ValuesIn(shard_cases()),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(CappedCases, Sharded, testing::ValuesIn(capped_shard_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

class VocabularyWorkspace : public OnDevice {};

TEST_F(VocabularyWorkspace, IsAtMostAQuarterOfALargeBf16NumeratorInSAndInT) {
    for (const int64_t tokens : {1, 512, 4096, 5000, 32768}) {
        for (const int64_t rows : {16384, 32768, 50257, 131072, 151936}) {
            const int64_t exp_logits = 2 * tokens * rows;
            const int64_t score = cuda::vocabulary_score_workspace_bytes(tokens, rows, DType::bf16);
            constexpr int64_t kLeast = int64_t{32} << 20;
            EXPECT_LE(score, std::max(exp_logits / 4, kLeast)) << tokens << " tokens, " << rows;
            // No smaller than needed: halving it would cost efficiency.
            EXPECT_GE(2 * score, std::min(std::max(exp_logits / 4, kLeast), 2 * exp_logits));
            EXPECT_LE(
                cuda::vocabulary_weight_gradient_workspace_bytes(tokens, rows / 4, DType::bf16),
                exp_logits / 4);
        }
    }
    EXPECT_EQ(cuda::vocabulary_input_gradient_workspace_bytes(4096), 0);
}

class Vocabulary : public OnDevice {};
class VocabularyScore : public OnDevice {};

TEST_F(Vocabulary, TakesOneTokenAndOneRow) {
    for (const LossOptions& options : {LossOptions{}, LossOptions{.label_smoothing = 0.1F}}) {
        for (const int64_t vocab : {1, 2, 5}) {
            const auto problem = random_problem(22, 1, 5, vocab, DType::fp32, 1, options, 1);
            const std::vector<int64_t> shards(static_cast<size_t>(vocab), 1);
            expect_within_fp32_bound(problem, run_shards(problem, shards, {.gap = 1}).result);
        }
    }
}

TEST_F(VocabularyScore, TakesTheColumnsInAsManyChunksAsTheWorkspaceAllows) {
    const LossOptions options{.label_smoothing = 0.1F, .z_loss = 1e-3F};
    for (const int64_t gap : {0, 3}) {
        const auto problem = random_problem(23, 6, 8, 1100, DType::fp32, 2, options, gap);
        const Outputs out = run_shards(problem, {1100}, {.gap = gap, .chunk_columns = 256});
        expect_within_fp32_bound(problem, out.result);
    }
}

// So many tokens that every warp takes a row of its own, on any GPU; the last block is not full.
TEST_F(VocabularyScore, TakesARowPerWarpWhereThereAreManyTokens) {
    int multiprocessors = 0;
    cuda::check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0),
                "cudaDeviceGetAttribute");
    const int64_t tokens = 16 * multiprocessors + 3;
    for (const LossOptions& options :
         {LossOptions{.label_smoothing = 0.1F, .z_loss = 1e-3F}, LossOptions{.logit_softcap = 3}}) {
        for (const int64_t gap : {0, 3}) {
            const auto problem = random_problem(25, tokens, 5, 611, DType::fp32, 2, options, gap);
            for (const int64_t chunk_columns : {0, 256}) {
                const Outputs out =
                    run_shards(problem, {311, 300}, {.gap = gap, .chunk_columns = chunk_columns});
                expect_within_fp32_bound(problem, out.result);
            }
        }
    }
    // What rises far above the reference point is followed here, too.
    Problem problem = random_problem(13, tokens, 4, 2600, DType::bf16, 1, {});
    for (int64_t n = 0; n < tokens; ++n) problem.x.set(n, 0, n % 2 == 0 ? 1.0 : 0.25);
    for (int64_t j = 0; j < 2600; ++j) {
        problem.w.set(j, 0, j < 2100 ? -50.0 : j < 2570 ? 50.0 : 100.0);
    }
    const Result exact = oracle(problem);
    for (const int64_t chunk_columns : {0, 512}) {
        const Result actual =
            run_shards(problem, {2600}, {.type = DType::bf16, .chunk_columns = chunk_columns})
                .result;
        EXPECT_LT(relative_error(actual.dx, exact.dx), 2e-3);
        EXPECT_LT(relative_error(actual.dw, exact.dw), 2e-3);
    }
}

/// A block per row for the pieces alone, other chunks, other algorithms: not here.
TEST_F(VocabularyScore, SomeRowsHaveTheBitsOfAllOfThem) {
    int multiprocessors = 0;
    cuda::check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0),
                "cudaDeviceGetAttribute");
    const int64_t tokens = 16 * multiprocessors;
    const auto problem =
        random_problem(25, tokens, 40, 611, DType::bf16, 2, {.label_smoothing = 0.1F});
    for (const int64_t chunk_columns : {0, 256}) {
        Mode mode{.type = DType::bf16, .chunk_columns = chunk_columns};
        const Outputs whole = run_shards(problem, {311, 300}, mode);
        mode.piece_rows = 16;
        const Outputs pieces = run_shards(problem, {311, 300}, mode);
        EXPECT_TRUE(pieces.statistics.same_bits(whole.statistics));
        for (size_t k = 0; k < 2; ++k) {
            EXPECT_TRUE(pieces.exp_logits[k].same_bits(whole.exp_logits[k]));
        }
    }
}

TEST_F(VocabularyScore, RefusesAWorkspaceBelow256Columns) {
    const auto problem = random_problem(24, 4, 4, 600, DType::fp32, 1, {});
    EXPECT_THROW((void)run_shards(problem, {600}, {.chunk_columns = 255}), UsageError);
}

TEST_F(VocabularyScore, RefusesASoftCapTogetherWithLabelSmoothing) {
    const auto problem = random_problem(24, 4, 4, 30, DType::fp32, 1,
                                        {.label_smoothing = 0.1F, .logit_softcap = 30});
    EXPECT_THROW((void)run_shards(problem, {30}, {}), UsageError);
}

TEST_F(VocabularyScore, FollowsLogitsThatRiseFarAboveThoseBefore) {
    // Three plateaus: rising by 100 and 50 (capped: 82 and 15) for even tokens, by less than the
    // slack for the others; within one chunk behind the columns that the reference point comes
    // from, and across chunks.
    struct Setting {
        int64_t chunk_columns;
        float cap;
    };
    for (const auto& [chunk_columns, cap] : {Setting{0, 0}, {512, 0}, {512, 60}}) {
        for (const DType type : {DType::fp32, DType::bf16}) {
            Problem problem = random_problem(13, 6, 4, 2600, type, 1, {.logit_softcap = cap});
            for (int64_t n = 0; n < 6; ++n) problem.x.set(n, 0, n % 2 == 0 ? 1.0 : 0.25);
            for (int64_t j = 0; j < 2600; ++j) {
                problem.w.set(j, 0, j < 2100 ? -50.0 : j < 2570 ? 50.0 : 100.0);
            }
            const Result exact = oracle(problem);
            const Result actual =
                run_shards(problem, {2600}, {.type = type, .chunk_columns = chunk_columns}).result;
            // Logits of 100 are off by 100 2^-24 times a few terms.
            const double limit = type == DType::fp32 ? 1e-4 : 2e-3;
            EXPECT_LT(relative_error(actual.dx, exact.dx), limit);
            EXPECT_LT(relative_error(actual.dw, exact.dw), limit);
            for (size_t n = 0; n < exact.loss.size(); ++n) {
                EXPECT_NEAR(actual.loss[n], exact.loss[n], 1e-4);
            }
        }
    }
}

TEST_F(VocabularyScore, StoresAnExactZeroForTheLabelAndSumsUnroundedExponentials) {
    for (const LossOptions& options : {LossOptions{}, LossOptions{.logit_softcap = 3}}) {
        for (const DType type : {DType::fp32, DType::bf16}) {
            const Problem problem = random_problem(14, 7, 16, 3000, type, 2, options);
            const Outputs out = run_shards(problem, {1500, 1500}, {.type = type});
            expect_exact_statistics_of_halves(problem, out.exp_logits, out.statistics);
        }
    }
}

TEST_F(VocabularyScore, KeepsNotANumberVisible) {
    Problem problem = random_problem(15, 8, 4, 300, DType::fp32, 1, {});
    problem.labels.assign(8, 5);
    problem.w.set(200, 1, NAN);
    const Result result = run_shards(problem, {150, 150}, {}).result;
    for (const double loss : result.loss) EXPECT_TRUE(std::isnan(loss));
    EXPECT_TRUE(std::isnan(result.dx.get(0, 0)));
}

TEST_F(Vocabulary, InBf16ConfidentTokensLoseNoMoreThanUncertainOnes) {
    // docs/numerics.md: 1.3e-4 and 1.7e-4 at a lead of 12; the conventional form has 2e-3.
    for (const double lead : {0.0, 12.0}) {
        const Problem problem = problem_with_lead(lead);
        const Result exact = oracle(problem);
        const Result actual =
            run_shards(problem, {512, 512, 512, 512}, {.type = DType::bf16}).result;
        EXPECT_LT(relative_error(actual.dx, exact.dx), 2.5e-4) << "lead " << lead;
        EXPECT_LT(relative_error(actual.dw, exact.dw), 2.5e-4) << "lead " << lead;
    }
}

TEST_F(Vocabulary, AStepWithoutAnyLabelHasLossAndGradientsOfZero) {
    Problem problem = random_problem(18, 16, 8, 64, DType::fp32, 1, {.label_smoothing = 0.1F});
    problem.labels.assign(16, kIgnoredLabel);
    problem.g.assign(16, 1);  // must not count
    const Result result = run_shards(problem, {32, 32}, {}).result;
    for (const double loss : result.loss) EXPECT_EQ(loss, 0);
    for (int64_t i = 0; i < 8; ++i) {
        for (int64_t n = 0; n < 16; ++n) EXPECT_EQ(result.dx.get(n, i), 0);
        for (int64_t j = 0; j < 64; ++j) EXPECT_EQ(result.dw.get(j, i), 0);
    }
}

TEST_F(Vocabulary, EvaluationNeedsLossesOnly) {
    Device device;
    const Matrix statistics = Matrix::random(10, kStatistics, DType::fp32, 3, 0.5, 2.0);
    const DeviceMatrix by_shard(device, statistics);
    const DeviceArray<int32_t> labels(device, {1, kIgnoredLabel, 7, 3, 0});
    const DeviceArray<float> g(device, std::vector<float>(5, 1.0F));
    const DeviceArray<float> with(device, std::vector<float>(5, NAN));
    const DeviceArray<float> without(device, std::vector<float>(5, NAN));
    const DeviceMatrix factors(device, Matrix(5, 2, DType::fp32));
    const VocabularyShard mine{.first_row = 0, .rows = 4, .vocab_size = 8};
    cuda::combine_statistics(device.context(), by_shard, labels, g, mine, 0, {}, factors, with);
    cuda::combine_statistics(device.context(), by_shard, labels, g, mine, 0, {}, {}, without);
    EXPECT_EQ(with.download(), without.download());
    EXPECT_EQ(with.download()[1], 0.0F);
}

TEST_F(Vocabulary, WeightGradientAddsToWhatIsThereAndRepeatedLabelsInOrder) {
    // 40 tokens share three labels; all addends are of one sign, so that order and completeness
    // show: each of at most 40 + 40 additions rounds by 2^-24 of a sum below its final value.
    Device device;
    const int64_t tokens = 40, rows = 10, hidden = 9;
    Matrix x = Matrix::random(tokens, hidden, DType::fp32, 5, 0.5, 1.0);
    const Matrix exp_logits = Matrix::random(tokens, rows, DType::fp32, 6, 0.0, 1.0);
    const Matrix factors = Matrix::random(tokens, 2, DType::fp32, 7, 0.1, 1.0);
    std::vector<int32_t> labels;
    std::vector<float> g(static_cast<size_t>(tokens), 1.0F);
    for (int32_t n = 0; n < tokens; ++n) {
        labels.push_back(n % 8 == 7 ? kIgnoredLabel : n % 8 == 6 ? 90 : 103 + n % 3);
    }
    const VocabularyShard shard{.first_row = 100, .rows = rows, .vocab_size = 200};
    const Matrix before = Matrix::random(rows, hidden, DType::fp32, 8, 0.0, 1.0);
    const DeviceMatrix dw(device, before);
    const DeviceMatrix xs(device, x), on_device(device, exp_logits), row_factors(device, factors);
    const DeviceArray<int32_t> device_labels(device, labels);
    const DeviceArray<float> device_g(device, g);
    const DeviceBytes space(static_cast<size_t>(
        cuda::vocabulary_weight_gradient_workspace_bytes(tokens, hidden, DType::fp32)));
    cuda::vocabulary_weight_gradient(device.context(), xs, on_device, row_factors, device_labels,
                                     device_g, shard, {}, dw, true, space);
    Context host({.poll = {}});
    Matrix expected = before.as(DType::fp64);
    reference::vocabulary_weight_gradient(host, x.as(DType::fp64).view(), exp_logits.view(),
                                          factors.view(), labels, g, shard, {}, expected.view(),
                                          true, {});
    expect_close(dw.download(), expected,
                 [&](int64_t j, int64_t i) { return 84 * kEps32 * std::abs(expected.get(j, i)); });
}

}  // namespace
}  // namespace vocabpipe::kernels::test
