// SPDX-License-Identifier: Apache-2.0
// A stage of one's own, y = x + gelu(x w^T), right and with every fault that its author may make.
#include "vocabpipe/check_gradients.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/operators.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kTokens = 6, kWidth = 5;

enum class Mistake : uint8_t {
    none,
    gradient_of_input_without_the_residual,
    gradient_of_input_by_a_percent,
    gradient_of_weight_by_a_percent,
    sets_where_it_should_add,
    another_gradient_in_b,
    recomputes_something_else,
    writes_behind_saved,
    writes_behind_the_workspace_of_i,
    changes_its_input,
    leaves_an_output_unwritten,
};

class GeluStage final : public StageModule {
public:
    explicit GeluStage(Mistake mistake)
        : mistake_(mistake), weight_(kWidth * kWidth), gradient_(weight_.size()) {
        for (size_t i = 0; i < weight_.size(); ++i) {
            weight_[i] = 0.4F * std::sin(static_cast<float>(i * i));
        }
        parameter_.name = "w";
        parameter_.weight = Tensor(weight_.data(), kWidth, kWidth, DType::fp32);
        parameter_.gradient = Tensor(gradient_.data(), kWidth, kWidth, DType::fp32);
    }
    [[nodiscard]] const std::vector<float>& weight() const { return weight_; }

    /// x w^T is kept, and gelu of it is made again by R.
    [[nodiscard]] StageBytes bytes() const override {
        const int64_t rows = kTokens * kWidth * size_of(DType::fp32);
        return {.saved = rows,
                .recomputed = rows,
                .for_weight = rows,
                .backward_workspace = rows,
                .input_gradient_workspace = rows};
    }
    [[nodiscard]] std::span<Parameter> parameters() override { return {&parameter_, 1}; }

    void forward(Context& ctx, const Microbatch&, ConstTensor x, Tensor y, Activations activations,
                 Bytes) override {
        const kernels::Operators& op = ctx.operators();
        op.linear_forward(ctx, x, parameter_.weight, {}, rows_in(activations.saved));
        op.activation_forward(ctx, kernels::Activation::gelu_tanh, rows_in(activations.saved),
                              rows_in(activations.recomputed));
        op.add(ctx, x, rows_in(activations.recomputed), y);
        if (made(Mistake::writes_behind_saved))
            activations.saved.data()[activations.saved.size()] = {};
        if (made(Mistake::leaves_an_output_unwritten)) y.as<float>()[3] = NAN;
    }
    void recompute(Context& ctx, const Microbatch&, ConstTensor, Activations activations,
                   Bytes) override {
        ctx.operators().activation_forward(ctx, kernels::Activation::gelu_tanh,
                                           rows_in(activations.saved),
                                           rows_in(activations.recomputed));
        if (made(Mistake::recomputes_something_else))
            rows_in(activations.recomputed).as<float>()[0] = 0;
    }
    void backward(Context& ctx, const Microbatch& microbatch, ConstTensor dy, ConstTensor x,
                  Activations activations, Tensor dx, Bytes workspace, bool accumulate) override {
        std::vector<std::byte> own(static_cast<size_t>(bytes().input_gradient_workspace));
        backward_input(ctx, microbatch, dy, x, activations, dx, workspace, own);
        backward_weight(ctx, microbatch, x, activations, workspace, {}, accumulate);
        if (made(Mistake::another_gradient_in_b)) gradient_[7] += 1;
    }
    void backward_input(Context& ctx, const Microbatch&, ConstTensor dy, ConstTensor x,
                        Activations activations, Tensor dx, Bytes for_weight,
                        Bytes workspace) override {
        const kernels::Operators& op = ctx.operators();
        const Tensor before = rows_in(for_weight), product = rows_in(workspace);
        op.activation_backward(ctx, kernels::Activation::gelu_tanh, dy, rows_in(activations.saved),
                               before);
        op.linear_backward_input(ctx, before, parameter_.weight, product);
        if (made(Mistake::gradient_of_input_without_the_residual)) {
            op.convert(ctx, product, dx);
        } else {
            op.add(ctx, product, dy, dx);
        }
        if (made(Mistake::gradient_of_input_by_a_percent)) op.scale(ctx, dx, 1.01F, dx);
        if (made(Mistake::writes_behind_the_workspace_of_i))
            workspace.data()[workspace.size() + 9] = {};
        if (made(Mistake::changes_its_input)) const_cast<float*>(x.as<float>())[1] = 0;
    }
    void backward_weight(Context& ctx, const Microbatch&, ConstTensor x, Activations,
                         Bytes for_weight, Bytes, bool accumulate) override {
        const bool adds = accumulate && !made(Mistake::sets_where_it_should_add);
        const Tensor before = rows_in(for_weight);
        if (made(Mistake::gradient_of_weight_by_a_percent)) {
            ctx.operators().scale(ctx, before, 1.01F, before);
        }
        ctx.operators().linear_backward_weight(ctx, before, x, parameter_.gradient, {}, adds);
    }

private:
    [[nodiscard]] static Tensor rows_in(Bytes bytes) {
        return {bytes.data(), kTokens, kWidth, DType::fp32};
    }
    [[nodiscard]] bool made(Mistake mistake) const { return mistake_ == mistake; }

    Mistake mistake_;
    std::vector<float> weight_, gradient_;
    Parameter parameter_;
};

constexpr GradientCheckOptions kOptions{.sequences = 2, .seq_length = 3, .hidden_size = kWidth};

std::string found(Mistake mistake) {
    GeluStage stage(mistake);
    try {
        (void)check_gradients(stage, kOptions);
    } catch (const Error& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::wrong_values);
        return error.what();
    }
    return "nothing was found";
}

TEST(CheckGradients, LeavesARightStageWithItsWeights) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        GeluStage stage(Mistake::none);
        const std::vector<float> before = stage.weight();
        GradientCheckOptions options = kOptions;
        options.seed = seed;
        const GradientCheck worst = check_gradients(stage, options);
        EXPECT_LT(worst.error, 2e-4) << worst.name;
        EXPECT_EQ(stage.weight(), before);
    }
}

TEST(CheckGradients, NamesThePassOrTheTensorOfEveryMistake) {
    EXPECT_THAT(found(Mistake::gradient_of_input_without_the_residual),
                HasSubstr("gradient of the input: grows at the rate"));
    EXPECT_THAT(found(Mistake::gradient_of_input_by_a_percent), HasSubstr("gradient of the input"));
    EXPECT_THAT(found(Mistake::gradient_of_weight_by_a_percent),
                HasSubstr("gradient of w: grows at the rate"));
    EXPECT_THAT(found(Mistake::sets_where_it_should_add),
                HasSubstr("B does not add to the gradient of w"));
    EXPECT_THAT(found(Mistake::another_gradient_in_b),
                HasSubstr("I and W give another gradient than B of w"));
    EXPECT_THAT(found(Mistake::recomputes_something_else), HasSubstr("R does not restore"));
    EXPECT_THAT(found(Mistake::writes_behind_saved),
                HasSubstr("F writes behind the 120 bytes of saved that bytes() asks for"));
    EXPECT_THAT(found(Mistake::writes_behind_the_workspace_of_i),
                HasSubstr("I writes behind the 120 bytes of input_gradient_workspace"));
    EXPECT_THAT(found(Mistake::changes_its_input), HasSubstr("changes the stage's input"));
    EXPECT_THAT(found(Mistake::leaves_an_output_unwritten), HasSubstr("gradient of"));
}

}  // namespace
}  // namespace vocabpipe::testing
