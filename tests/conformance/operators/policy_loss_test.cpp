// SPDX-License-Identifier: Apache-2.0
// Losses of records on shards of the vocabulary: from logits to gradients against PyTorch.
#include "tests/conformance/policy_loss_values.hpp"

#include "tests/conformance/gradients_of_pytorch.hpp"
#include "tests/conformance/sharded_vocabulary.hpp"

namespace vocabpipe::kernels::test {
namespace {

class PolicyLossOf : public OperatorTest<> {
protected:
    /// All shards in turn, as ranks with two barriers compute them.
    [[nodiscard]] Result run(const PolicyLossInputs& in, const PolicyLossValues& c,
                             const std::vector<int64_t>& shard_rows, DType type) const {
        const bool bonus = c.options.entropy_coefficient != 0;
        LossOptions options{.logit_softcap = c.logit_softcap,
                            .records = {TokenRecord::loss, TokenRecord::logprob},
                            .temperature = c.temperature,
                            .caps_later = bonus && c.logit_softcap > 0};
        if (bonus) options.records = options.records | TokenRecords{TokenRecord::entropy};
        const Problem problem = problem_of(in, options, type);
        std::vector<float> columns(in.advantage.begin(), in.advantage.end());
        columns.insert(columns.end(), in.old.begin(), in.old.end());
        columns.insert(columns.end(), in.reference.begin(), in.reference.end());
        const auto of_caller = up(columns);
        ShardedLayer layer(device(), ctx(), problem, shard_rows,
                           {.type = type, .two_barriers = true, .gap = 3});
        for (size_t k = 0; k < layer.count(); ++k) layer.score(k);
        std::vector<double> losses;
        std::vector<Uploaded> rows;
        for (size_t k = 0; k < layer.count(); ++k) {
            const int member = static_cast<int>(k);
            const auto count = static_cast<size_t>(in.tokens());
            const auto records =
                up(std::vector<float>(static_cast<size_t>(options.records.size()) * count, NAN));
            ops().combine_statistics(ctx(), layer.statistics(), layer.labels(), layer.g().span(),
                                     layer.shard(k), member, options, {}, records);
            const auto gradients = up(std::vector<float>(2 * count, NAN));
            const auto record = [&](TokenRecord one) {
                return std::span<const float>(records.span())
                    .subspan(static_cast<size_t>(options.records.index_of(one)) * count, count);
            };
            const std::span<float> by_loss = gradients.span().first(count);
            const std::span<float> by_entropy = gradients.span().last(bonus ? count : 0);
            ops().policy_loss(ctx(), c.options, layer.labels(), layer.g(),
                              record(TokenRecord::logprob),
                              bonus ? record(TokenRecord::entropy) : std::span<const float>(),
                              of_caller, records.span().first(count), by_loss, by_entropy);
            const Uploaded factors = layer.poison(bonus ? 4 : 2, DType::fp32);
            ops().combine_statistics(ctx(), layer.statistics(), layer.labels(),
                                     TokenGradients(by_loss, by_entropy), layer.shard(k), member,
                                     options, factors, {});
            if (bonus) ops().weigh_by_entropy(ctx(), options, layer.exp_logits(k), factors);
            const ConstTensor used = factors.view().column_range(0, 2);
            layer.input_gradient(k, used);
            rows.push_back(layer.weight_gradient(k, used));
            EXPECT_TRUE(layer.exp_logits(k).download().gaps_are_intact());
            EXPECT_TRUE(factors.download().gaps_are_intact());
            const std::vector<float> all = records.download();
            losses.assign(all.begin(), all.begin() + in.tokens());
        }
        return layer.result(losses, rows);
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
