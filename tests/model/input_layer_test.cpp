// SPDX-License-Identifier: Apache-2.0
#include "src/model/input_layer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/host/operators.hpp"

namespace vocabpipe::testing {
namespace {

constexpr int64_t kRows = 30;
constexpr int64_t kFirstRow = 10;
constexpr int64_t kWidth = 5;

/// A shard of a tied embedding, and the same gradient with all rows cleared and added in every
/// step.
class TiedInputLayer : public ::testing::Test {
protected:
    using Tokens = std::vector<int32_t>;

    TiedInputLayer() {
        parameter_.front().first_row = kFirstRow;
        parameter_.front().gradient = view(gradient_);
        parameter_.front().token_gradient = view(token_gradient_);
    }

    void add_up(const std::vector<Tokens>& microbatches) {
        std::fill(dense_.begin(), dense_.end(), -0.0F);
        bool accumulate = false;
        for (const Tokens& tokens : microbatches) {
            std::vector<float> dy(tokens.size() * kWidth);
            for (float& value : dy) value = next();
            const ConstTensor rows(dy.data(), static_cast<int64_t>(tokens.size()), kWidth,
                                   DType::fp32);
            layer_.gradient(ctx_, {.tokens = tokens}, rows, accumulate);
            accumulate = true;
            for (size_t n = 0; n < tokens.size(); ++n) {
                const int64_t row = tokens[n] - kFirstRow;
                if (row < 0 || row >= kRows) continue;
                for (int64_t i = 0; i < kWidth; ++i) {
                    dense_[static_cast<size_t>(row * kWidth + i)] +=
                        rows.as<float>()[static_cast<int64_t>(n) * kWidth + i];
                }
            }
        }
    }

    void step(const std::vector<Tokens>& microbatches) {
        add_up(microbatches);
        expect_same(token_gradient_, dense_);
        for (size_t i = 0; i < gradient_.size(); ++i) gradient_[i] = i % 3 == 0 ? -0.0F : next();
        std::vector<float> sum = gradient_;
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += dense_[i];
        layer_.reduce_tied(ctx_);
        expect_same(gradient_, sum);
    }

    static void expect_same(const std::vector<float>& actual, const std::vector<float>& expected) {
        EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0);
    }
    static Tensor view(std::vector<float>& values) {
        return {values.data(), kRows, kWidth, DType::fp32};
    }
    float next() { return std::sin(static_cast<float>(++made_)); }

    int made_ = 0;
    Context ctx_{{.threads = 1, .poll = {}}};
    std::vector<float> gradient_ = std::vector<float>(kRows * kWidth, NAN);
    std::vector<float> token_gradient_ = gradient_;
    std::vector<float> dense_ = gradient_;
    std::vector<Parameter> parameter_ = std::vector<Parameter>(1);
    ShardedInputLayer layer_{parameter_};
};

TEST_F(TiedInputLayer, AddsTheRowsOfEveryStepsTokensAndNoneOfTheLast) {
    step({{11, 12, 11, 39}, {12, 20, 3}});
    step({{12, 25}, {26, 40, 25}});
    step({{1, 2}});  // none of this shard
    step({{39, 10}, {39}});
}

TEST_F(TiedInputLayer, ForgetsAStepThatNobodyReduced) {
    step({{11, 12}});
    add_up({{13, 14}, {30}});
    step({{14, 15}});
    step({{13}});
}

}  // namespace
}  // namespace vocabpipe::testing
