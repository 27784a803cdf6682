// SPDX-License-Identifier: Apache-2.0
// Distillation on shards of the vocabulary: from logits to gradients against PyTorch.
#include "tests/conformance/distillation_values.hpp"

#include "tests/conformance/gradients_of_pytorch.hpp"
#include "tests/conformance/operator_test.hpp"
#include "tests/conformance/vocabulary_oracle.hpp"

#include <cmath>
#include <limits>

namespace vocabpipe::kernels::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr TokenRecords kRead{TokenRecord::loss, TokenRecord::logprob, TokenRecord::logsumexp};

class DistillationOf : public OperatorTest<> {
protected:
    /// All shards in turn, as ranks with two barriers compute them.
    [[nodiscard]] LossGradients run(const DistillationInputs& in, const DistillationValues& c,
                                    const std::vector<int64_t>& shard_rows, DType type) const {
        const int64_t tokens = in.tokens();
        const int64_t hidden = in.hidden();
        const int64_t k = c.options.top_k;
        const auto count = static_cast<size_t>(tokens);
        const LossOptions options{
            .logit_softcap = c.logit_softcap, .records = kRead, .temperature = c.temperature};
        const Uploaded x = up(matrix(in.x, tokens, hidden, type));
        const Matrix whole_w = matrix(in.w, in.vocab(), hidden, type);
        const auto labels = up(in.labels);
        const auto g = up(std::vector<float>(in.g.begin(), in.g.end()));
        const Uploaded teacher = up(matrix(in.teacher, k, tokens, DType::fp32));
        const Uploaded ids = up(matrix(in.ids, k, tokens, DType::fp32));
        const auto shards = static_cast<int64_t>(shard_rows.size());
        const Uploaded statistics = poison(shards * tokens, statistics_columns(kRead), DType::fp32);
        const Uploaded listed = poison(shards * tokens, k, DType::fp32);
        std::vector<VocabularyShard> shard;
        std::vector<Uploaded> w, exp_logits;
        int64_t first = 0;
        for (int64_t s = 0; s < shards; ++s) {
            const int64_t rows = shard_rows[static_cast<size_t>(s)];
            shard.push_back({.first_row = first, .rows = rows, .vocab_size = in.vocab()});
            w.push_back(up(rows_of(whole_w, first, rows, 3)));
            exp_logits.push_back(poison(tokens, rows, type));
            const Workspace space(device(),
                                  ops().vocabulary_score_workspace_bytes(tokens, rows, type));
            ops().vocabulary_score(ctx(), x, w.back(), labels, shard.back(), options,
                                   exp_logits.back(),
                                   statistics.view().row_range(s * tokens, tokens), {}, space);
            ops().listed_logits(ctx(), x, w.back(), ids, shard.back(), options,
                                listed.view().row_range(s * tokens, tokens));
            first += rows;
        }
        LossGradients found{
            {}, Matrix(tokens, hidden, DType::fp32), Matrix(in.vocab(), hidden, DType::fp32)};
        std::vector<double> dx(static_cast<size_t>(tokens * hidden));
        for (size_t s = 0; s < shard.size(); ++s) {
            const int member = static_cast<int>(s);
            const auto records = up(std::vector<float>(3 * count, NAN));
            ops().combine_statistics(ctx(), statistics, labels, g, shard[s], member, options, {},
                                     records);
            const auto gradient = up(std::vector<float>(count, NAN));
            const Uploaded slopes = poison(tokens, 1 + k, DType::fp32);
            const std::span<float> all = records;
            ops().distillation_loss(ctx(), c.options, options, listed, labels, g,
                                    all.subspan(count, count), all.subspan(2 * count, count),
                                    teacher, all.first(count), gradient, slopes);
            const Uploaded factors = poison(tokens, 2, DType::fp32);
            ops().combine_statistics(ctx(), statistics, labels, gradient.span(), shard[s], member,
                                     options, factors, {});
            const Uploaded u = poison(tokens, hidden, DType::fp32);
            ops().vocabulary_input_product(ctx(), exp_logits[s], w[s], u);
            const Workspace sums(device(), ops().vocabulary_input_gradient_workspace_bytes(hidden));
            ops().vocabulary_input_gradient(ctx(), u, factors, w[s], labels, g, shard[s], options,
                                            sums);
            ops().listed_input_gradient(ctx(), slopes, w[s], labels, ids, shard[s], u);
            const Uploaded dw = poison(shard[s].rows, hidden, DType::fp32);
            const Workspace space(
                device(), ops().vocabulary_weight_gradient_workspace_bytes(tokens, hidden, type));
            ops().vocabulary_weight_gradient(ctx(), x, exp_logits[s], factors, labels, g, shard[s],
                                             options, dw, false, space);
            ops().listed_weight_gradient(ctx(), slopes, x, labels, ids, shard[s], dw);
            const Matrix part = u.download();
            const Matrix rows = dw.download();
            EXPECT_TRUE(slopes.download().gaps_are_intact());
            EXPECT_TRUE(part.gaps_are_intact());
            EXPECT_TRUE(rows.gaps_are_intact());
            for (int64_t i = 0; i < hidden; ++i) {
                for (int64_t n = 0; n < tokens; ++n) {
                    dx[static_cast<size_t>(n * hidden + i)] += part.get(n, i);
                    found.dx.set(n, i, dx[static_cast<size_t>(n * hidden + i)]);
                }
                for (int64_t j = 0; j < shard[s].rows; ++j) {
                    found.dw.set(shard[s].first_row + j, i, rows.get(j, i));
                }
            }
            const std::vector<float> made = records.download();
            found.loss.assign(made.begin(), made.begin() + tokens);
        }
        EXPECT_TRUE(listed.download().gaps_are_intact());
        return found;
    }
};

TEST_P(DistillationOf, HasTheValuesAndGradientsOfPyTorch) {
    expect_gradients_of_pytorch(kDistillationInputs, kDistillationValues,
                                [&](const auto&... of) { return run(of...); });
}

TEST_P(DistillationOf, HasNoSlopesByMissingEntriesAndForbiddenTokens) {
    const auto labels = up(std::vector<int32_t>{2, 2});
    const auto ones = up(std::vector<float>(2, 1.0F));
    const auto logprob = up(std::vector<float>{-1.0F, -1.0F});
    const auto log_z = up(std::vector<float>{0.5F, 0.5F});
    // Entry 1 of token 0 is missing; of token 1 it is a token that is not allowed.
    const Uploaded teacher = up(matrix({-0.5, -0.5, -kInfinity, -2}, 2, 2, DType::fp32));
    const Uploaded listed = up(matrix({0.25, 0, 0.25, -kInfinity}, 2, 2, DType::fp32));
    const auto loss = up(std::vector<float>(2, NAN));
    const auto gradient = up(std::vector<float>(2, NAN));
    const Uploaded slopes = poison(2, 3, DType::fp32);
    ops().distillation_loss(ctx(), {.top_k = 2}, {}, listed, labels, ones, logprob, log_z, teacher,
                            loss, gradient, slopes);
    const double t = std::exp(-0.5);
    const std::vector<float> losses = loss.download();
    EXPECT_NEAR(losses[0], t * (-0.5 - (0.25 - 0.5)), 1e-6);
    EXPECT_EQ(losses[1], kInfinity) << "the teacher's token cannot be had";
    const Matrix found = slopes.download();
    EXPECT_NEAR(found.get(0, 0), t, 1e-6);
    EXPECT_NEAR(found.get(0, 1), -t, 1e-6);
    EXPECT_EQ(found.get(0, 2), 0);
    EXPECT_EQ(found.get(1, 2), 0);
    EXPECT_NEAR(gradient.download()[1], t + std::exp(-2.0), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Devices, DistillationOf,
                         testing::Combine(testing::ValuesIn(devices_under_test())), kNames);

using DistillationArguments = OperatorTest<>;

TEST_P(DistillationArguments, AreChecked) {
    const auto labels = up(std::vector<int32_t>(4));
    const auto four = up(std::vector<float>(4));
    const auto numbers = [&](int64_t rows, int64_t cols) {
        return poison(rows, cols, DType::fp32);
    };
    const auto loss = [&](int64_t k, int64_t listed, int64_t entries, int64_t slopes) {
        ops().distillation_loss(ctx(), {.top_k = k}, {}, numbers(8, listed), labels, four, four,
                                four, numbers(entries, 4), four, four, numbers(4, slopes));
    };
    EXPECT_THROW(loss(0, 0, 0, 1), UsageError);
    EXPECT_THROW(loss(65, 65, 65, 66), UsageError);
    EXPECT_THROW(loss(3, 2, 3, 4), UsageError);
    EXPECT_THROW(loss(3, 3, 2, 4), UsageError);
    EXPECT_THROW(loss(3, 3, 3, 3), UsageError);
    const VocabularyShard shard{.first_row = 0, .rows = 6, .vocab_size = 6};
    const auto logits = [&](int64_t tokens, int64_t k) {
        ops().listed_logits(ctx(), numbers(4, 8), numbers(6, 8), numbers(3, tokens), shard, {},
                            numbers(4, k));
    };
    EXPECT_THROW(logits(5, 3), UsageError);
    EXPECT_THROW(logits(4, 2), UsageError);
    EXPECT_THROW(ops().listed_input_gradient(ctx(), numbers(4, 4), numbers(6, 8), labels,
                                             numbers(2, 4), shard, numbers(4, 8)),
                 UsageError);
    EXPECT_THROW(ops().listed_weight_gradient(ctx(), numbers(4, 4), numbers(4, 8), labels,
                                              numbers(3, 4), shard, numbers(5, 8)),
                 UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, DistillationArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test
