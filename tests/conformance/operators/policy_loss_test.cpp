// SPDX-License-Identifier: Apache-2.0
// Losses of records on shards of the vocabulary: from logits to gradients against PyTorch.
#include "tests/conformance/policy_loss_values.hpp"

#include "tests/conformance/gradients_of_pytorch.hpp"
#include "tests/conformance/operator_test.hpp"
#include "tests/conformance/vocabulary_oracle.hpp"

#include <numeric>

namespace vocabpipe::kernels::test {
namespace {

class PolicyLossOf : public OperatorTest<> {
protected:
    /// All shards in turn, as ranks with two barriers compute them.
    [[nodiscard]] LossGradients run(const PolicyLossInputs& in, const PolicyLossValues& c,
                                    const std::vector<int64_t>& shard_rows, DType type) const {
        const int64_t tokens = in.tokens();
        const int64_t hidden = in.hidden();
        const bool bonus = c.options.entropy_coefficient != 0;
        LossOptions options{.logit_softcap = c.logit_softcap,
                            .records = {TokenRecord::loss, TokenRecord::logprob},
                            .temperature = c.temperature,
                            .caps_later = bonus && c.logit_softcap > 0};
        if (bonus) options.records = options.records | TokenRecords{TokenRecord::entropy};
        const Uploaded x = up(matrix(in.x, tokens, hidden, type));
        const Matrix whole_w = matrix(in.w, in.vocab(), hidden, type);
        const auto labels = up(in.labels);
        const auto g = up(std::vector<float>(in.g.begin(), in.g.end()));
        std::vector<float> columns(in.advantage.begin(), in.advantage.end());
        columns.insert(columns.end(), in.old.begin(), in.old.end());
        columns.insert(columns.end(), in.reference.begin(), in.reference.end());
        const auto of_caller = up(columns);
        const auto shards = static_cast<int64_t>(shard_rows.size());
        const Uploaded statistics =
            poison(shards * tokens, statistics_columns(options.records), DType::fp32);
        std::vector<VocabularyShard> shard;
        std::vector<Uploaded> w, exp_logits;
        int64_t first = 0;
        for (int64_t k = 0; k < shards; ++k) {
            const int64_t rows = shard_rows[static_cast<size_t>(k)];
            shard.push_back({.first_row = first, .rows = rows, .vocab_size = in.vocab()});
            w.push_back(up(rows_of(whole_w, first, rows, 3)));
            exp_logits.push_back(poison(tokens, rows, type));
            const Workspace space(device(),
                                  ops().vocabulary_score_workspace_bytes(tokens, rows, type));
            ops().vocabulary_score(ctx(), x, w.back(), labels, shard.back(), options,
                                   exp_logits.back(),
                                   statistics.view().row_range(k * tokens, tokens), {}, space);
            first += rows;
        }
        LossGradients found{
            {}, Matrix(tokens, hidden, DType::fp32), Matrix(in.vocab(), hidden, DType::fp32)};
        std::vector<double> dx(static_cast<size_t>(tokens * hidden));
        for (size_t k = 0; k < shard.size(); ++k) {
            const int member = static_cast<int>(k);
            const auto count = static_cast<size_t>(tokens);
            const auto records =
                up(std::vector<float>(static_cast<size_t>(options.records.size()) * count, NAN));
            ops().combine_statistics(ctx(), statistics, labels, g, shard[k], member, options, {},
                                     records);
            const auto gradients = up(std::vector<float>(2 * count, NAN));
            const auto record = [&](TokenRecord one) {
                return std::span<const float>(records.span())
                    .subspan(static_cast<size_t>(options.records.index_of(one)) * count, count);
            };
            const std::span<float> loss = records.span().first(count);
            const std::span<float> by_loss = gradients.span().first(count);
            const std::span<float> by_entropy = gradients.span().last(bonus ? count : 0);
            ops().policy_loss(ctx(), c.options, labels, g, record(TokenRecord::logprob),
                              bonus ? record(TokenRecord::entropy) : std::span<const float>(),
                              of_caller, loss, by_loss, by_entropy);
            const Uploaded factors = poison(tokens, bonus ? 4 : 2, DType::fp32);
            ops().combine_statistics(ctx(), statistics, labels, TokenGradients(by_loss, by_entropy),
                                     shard[k], member, options, factors, {});
            if (bonus) ops().weigh_by_entropy(ctx(), options, exp_logits[k], factors);
            const ConstTensor used = factors.view().column_range(0, 2);
            const Uploaded u = poison(tokens, hidden, DType::fp32);
            ops().vocabulary_input_product(ctx(), exp_logits[k], w[k], u);
            const Workspace sums(device(), ops().vocabulary_input_gradient_workspace_bytes(hidden));
            ops().vocabulary_input_gradient(ctx(), u, used, w[k], labels, g, shard[k], options,
                                            sums);
            const Uploaded dw = poison(shard[k].rows, hidden, DType::fp32);
            const Workspace space(
                device(), ops().vocabulary_weight_gradient_workspace_bytes(tokens, hidden, type));
            ops().vocabulary_weight_gradient(ctx(), x, exp_logits[k], used, labels, g, shard[k],
                                             options, dw, false, space);
            const Matrix part = u.download();
            const Matrix rows = dw.download();
            EXPECT_TRUE(exp_logits[k].download().gaps_are_intact());
            EXPECT_TRUE(factors.download().gaps_are_intact());
            for (int64_t i = 0; i < hidden; ++i) {
                for (int64_t n = 0; n < tokens; ++n) {
                    dx[static_cast<size_t>(n * hidden + i)] += part.get(n, i);
                    found.dx.set(n, i, dx[static_cast<size_t>(n * hidden + i)]);
                }
                for (int64_t j = 0; j < shard[k].rows; ++j) {
                    found.dw.set(shard[k].first_row + j, i, rows.get(j, i));
                }
            }
            const std::vector<float> all = records.download();
            found.loss.assign(all.begin(), all.begin() + tokens);
        }
        return found;
    }
};

TEST_P(PolicyLossOf, HasTheValuesAndGradientsOfPyTorch) {
    expect_gradients_of_pytorch(kPolicyLossInputs, kPolicyLossValues,
                                [&](const auto&... of) { return run(of...); });
}

INSTANTIATE_TEST_SUITE_P(Devices, PolicyLossOf,
                         testing::Combine(testing::ValuesIn(devices_under_test())), kNames);

using PolicyLossArguments = OperatorTest<>;

TEST_P(PolicyLossArguments, AreChecked) {
    const auto labels = up(std::vector<int32_t>(4));
    const auto numbers = up(std::vector<float>(12));
    const auto four = numbers.span().first(4);
    const auto call = [&](const PolicyLossOptions& options, size_t columns, size_t entropies) {
        ops().policy_loss(ctx(), options, labels, four, four, four.first(entropies),
                          numbers.span().first(columns), four, four, four.first(entropies));
    };
    EXPECT_THROW(call({}, 7, 0), UsageError);
    EXPECT_THROW(call({.kl_coefficient = 1}, 8, 0), UsageError);
    EXPECT_THROW(call({.entropy_coefficient = 1}, 8, 0), UsageError);
    EXPECT_THROW(call({}, 8, 4), UsageError);
    EXPECT_THROW(
        ops().weigh_by_entropy(ctx(), {}, poison(4, 5, DType::fp32), poison(4, 2, DType::fp32)),
        UsageError);
    EXPECT_THROW(ops().weigh_by_entropy(ctx(), {.logit_softcap = 3}, poison(4, 5, DType::fp32),
                                        poison(4, 4, DType::fp32)),
                 UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, PolicyLossArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test
