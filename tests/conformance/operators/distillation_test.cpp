// SPDX-License-Identifier: Apache-2.0
// Distillation on shards of the vocabulary: from logits to gradients against PyTorch.
#include "tests/conformance/distillation_values.hpp"

#include "tests/conformance/gradients_of_pytorch.hpp"
#include "tests/conformance/sharded_vocabulary.hpp"

#include <cmath>
#include <limits>

namespace vocabpipe::kernels::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr TokenRecords kRead{TokenRecord::loss, TokenRecord::logprob, TokenRecord::logsumexp};

class DistillationOf : public OperatorTest<> {
protected:
    /// All shards in turn, as ranks with two barriers compute them.
    [[nodiscard]] Result run(const DistillationInputs& in, const DistillationValues& c,
                             const std::vector<int64_t>& shard_rows, DType type) const {
        const int64_t tokens = in.tokens();
        const int64_t top = c.options.top_k;
        const auto count = static_cast<size_t>(tokens);
        const LossOptions options{
            .logit_softcap = c.logit_softcap, .records = kRead, .temperature = c.temperature};
        const Problem problem = problem_of(in, options, type);
        const Uploaded teacher = up(matrix(in.teacher, top, tokens, DType::fp32));
        const Uploaded ids = up(matrix(in.ids, top, tokens, DType::fp32));
        const Uploaded listed = poison(std::ssize(shard_rows) * tokens, top, DType::fp32);
        ShardedLayer layer(device(), ctx(), problem, shard_rows,
                           {.type = type, .two_barriers = true, .gap = 3});
        for (size_t k = 0; k < layer.count(); ++k) {
            layer.score(k);
            ops().listed_logits(ctx(), layer.x(), layer.w(k), ids, layer.shard(k), options,
                                listed.view().row_range(static_cast<int64_t>(k) * tokens, tokens));
        }
        std::vector<double> losses;
        std::vector<Uploaded> rows;
        for (size_t k = 0; k < layer.count(); ++k) {
            const int member = static_cast<int>(k);
            const auto records = up(std::vector<float>(3 * count, NAN));
            ops().combine_statistics(ctx(), layer.statistics(), layer.labels(), layer.g().span(),
                                     layer.shard(k), member, options, {}, records);
            const auto gradient = up(std::vector<float>(count, NAN));
            const Uploaded slopes = poison(tokens, 1 + top, DType::fp32);
            const std::span<float> all = records;
            ops().distillation_loss(ctx(), c.options, options, listed, layer.labels(), layer.g(),
                                    all.subspan(count, count), all.subspan(2 * count, count),
                                    teacher, all.first(count), gradient, slopes);
            const Uploaded factors = layer.poison(2, DType::fp32);
            ops().combine_statistics(ctx(), layer.statistics(), layer.labels(), gradient.span(),
                                     layer.shard(k), member, options, factors, {});
            const Uploaded& u = layer.input_gradient(k, factors);
            ops().listed_input_gradient(ctx(), slopes, layer.w(k), layer.labels(), ids,
                                        layer.shard(k), u);
            rows.push_back(layer.weight_gradient(k, factors));
            ops().listed_weight_gradient(ctx(), slopes, layer.x(), layer.labels(), ids,
                                         layer.shard(k), rows.back());
            EXPECT_TRUE(slopes.download().gaps_are_intact());
            const std::vector<float> made = records.download();
            losses.assign(made.begin(), made.begin() + tokens);
        }
        EXPECT_TRUE(listed.download().gaps_are_intact());
        return layer.result(losses, rows);
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
