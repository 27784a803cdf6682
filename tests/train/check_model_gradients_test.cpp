// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/check_model_gradients.hpp"

#include "tests/model/model_cases.hpp"
#include "tests/train/graph_models.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(CheckModelGradients, PassesModelsOfOneFunctionAndOfTheLibrary) {
    for (const GraphModel& model : graph_models()) {
        SCOPED_TRACE(model.name);
        const GradientCheck check = check_gradients(
            model.config, {.sequences = kGraphSequences, .labels = 2, .columns = kGraphColumns});
        EXPECT_GT(check.error, 0);
        EXPECT_LT(check.error, 1e-2);
        EXPECT_NE(check.name, "");
    }
    EXPECT_LT(check_gradients(small_family("llama", 3, 8, 29, false)).error, 1e-2);
}

/// y = x + w x, with mistakes.
struct Mistakes {
    float input = 1;   ///< factor of dx
    float weight = 1;  ///< factor of dw
};
ModelConfig scaled_model(Mistakes mistakes) {
    const LayerOperator scaled{
        .name = "scaled",
        .columns = 8,
        .weights = {{.name = "factors", .cols = 8, .init_std = 1}},
        .forward =
            [](Context&, const Microbatch&, const OperatorTensors& in, Tensor y) {
                for (int64_t i = 0; i < y.size(); ++i) {
                    const float factor = 1 + in.weights[0].as<float>()[i % 8];
                    y.as<float>()[i] = factor * in.x[0].as<float>()[i];
                }
            },
        .backward_input =
            [=](Context&, const Microbatch&, const OperatorTensors& in, ConstTensor dy,
                std::span<const Tensor> dx) {
                for (int64_t i = 0; i < dy.size(); ++i) {
                    const float factor = 1 + in.weights[0].as<float>()[i % 8];
                    dx[0].as<float>()[i] = mistakes.input * factor * dy.as<float>()[i];
                }
            },
        .backward_weight =
            [=](Context&, const Microbatch&, const OperatorTensors& in, ConstTensor dy,
                std::span<const Tensor> dw, bool accumulate) {
                for (int64_t i = 0; i < dy.size(); ++i) {
                    float& to = dw[0].as<float>()[i % 8];
                    if (i < 8 && !accumulate) to = 0;
                    to += mistakes.weight * in.x[0].as<float>()[i] * dy.as<float>()[i];
                }
            }};
    return model_of(
        [=](ModelGraph& g) {
            const LayerValue x = g.layer_norm("norm", g.embedded_tokens());
            g.pipeline_stage();
            g.output(g.apply(scaled, {x}));
        },
        {.hidden_size = 8, .seq_length = 8, .vocab_size = 19, .init_std = 0.3F});
}

TEST(CheckModelGradients, FindsMistakesOfOwnOperators) {
    EXPECT_LT(check_gradients(scaled_model({})).error, 1e-2);
    EXPECT_THAT([] { check_gradients(scaled_model({.weight = 1.1F})); },
                ThrowsMessage<Error>(HasSubstr(
                    "check_gradients: gradient of transformer.h.1.factors: the loss grows at")));
    EXPECT_THAT([] { check_gradients(scaled_model({.input = 0.9F})); },
                ThrowsMessage<Error>(HasSubstr("gradient of transformer.")));
}

/// An operator that remembers is right on one rank only.
TEST(CheckModelGradients, FindsGradientsThatDependOnTheCut) {
    const auto calls = std::make_shared<std::atomic<int>>(0);
    const LayerOperator remembers{
        .name = "remembers",
        .columns = 8,
        .forward = [](Context&, const Microbatch&, const OperatorTensors& in,
                      Tensor y) { std::copy_n(in.x[0].as<float>(), y.size(), y.as<float>()); },
        .backward_input =
            [calls](Context&, const Microbatch&, const OperatorTensors&, ConstTensor dy,
                    std::span<const Tensor> dx) {
                const float factor = ++*calls > 1000000 ? 2.0F : 1.0F;
                for (int64_t i = 0; i < dy.size(); ++i) {
                    dx[0].as<float>()[i] = factor * dy.as<float>()[i];
                }
            }};
    const ModelConfig model = model_of(
        [=](ModelGraph& g) {
            const LayerValue x = g.linear("in", g.embedded_tokens(), {.out = {8}});
            g.pipeline_stage();
            g.output(g.linear("out", g.apply(remembers, {x}), {.out = {8}}));
        },
        {.hidden_size = 8, .seq_length = 8, .vocab_size = 19, .init_std = 0.3F});
    EXPECT_LT(check_gradients(model).error, 1e-2);
    const int on_one_rank = *calls - 2;  // the last two of the second run
    *calls = 1000000 - on_one_rank;
    EXPECT_THAT([&] { check_gradients(model); },
                ThrowsMessage<Error>(HasSubstr("is another where every layer is a stage")));
}

TEST(CheckModelGradients, RefusesDataWithoutTheColumnsThatAModelReads) {
    const ModelConfig model = graph_models()[1].config;
    EXPECT_THAT([&] { check_gradients(model, {.sequences = kGraphSequences, .labels = 2}); },
                ThrowsMessage<Error>(HasSubstr("reads the columns 0 to 2 of the data, but")));
}

}  // namespace
}  // namespace vocabpipe::testing
