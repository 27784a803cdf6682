// SPDX-License-Identifier: Apache-2.0
// The feed-forward part of a layer with experts against its definition in double: outputs against
// plain loops, gradients against finite differences of these loops, away from where tokens change
// their experts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "src/model/blocks/moe/router.hpp"
#include "src/model/families/families.hpp"
#include "tests/model/expert_run.hpp"
#include "tests/model/fp64_moe.hpp"
#include "tests/model/tensor_models.hpp"

namespace vocabpipe::testing {
namespace {

using fp64::Rows;

constexpr int64_t kTokens = 13;
constexpr double kStep = 1e-4;    // of a finite difference
constexpr double kBound = 1e-5;   // fp32 sums of up to 40 products
constexpr size_t kElements = 40;  // of a tensor, whose gradients are looked at

struct MoeCase {
    std::string name;
    ModelConfig config;
    friend void PrintTo(const MoeCase& c, std::ostream* out) { *out << c.name; }
};

MoeCase moe_case(const std::string& name, std::string_view family, const auto& change) {
    ModelConfig config = tensor_model(family, false);
    config.hidden_size = 12;
    config.ffn_hidden_size = 20;
    config.moe.experts = 6;
    config.moe.top_k = 2;
    change(config.moe);
    return {.name = name, .config = config};
}

std::vector<MoeCase> moe_cases() {
    const auto with_losses = [](MoeConfig& moe) {
        moe.aux_loss = 0.7F;
        moe.z_loss = 0.3F;
    };
    return {
        moe_case("NormalizedSoftmax", "mixtral", [](MoeConfig&) {}),
        moe_case("SoftmaxWithBothLosses", "qwen3_moe",
                 [&](MoeConfig& moe) {
                     with_losses(moe);
                     moe.normalize = false;
                     moe.ffn_hidden_size = 9;
                 }),
        moe_case("NormalizedSoftmaxWithBothLosses", "olmoe",
                 [&](MoeConfig& moe) {
                     with_losses(moe);
                     moe.normalize = true;
                 }),
        moe_case("AllExperts", "mixtral", [](MoeConfig& moe) { moe.top_k = 6; }),
        moe_case("OneExpertPerToken", "qwen3_moe",
                 [](MoeConfig& moe) {
                     moe.top_k = 1;
                     moe.normalize = false;
                 }),
        moe_case("GatedSharedExpert", "qwen2_moe",
                 [&](MoeConfig& moe) {
                     with_losses(moe);
                     moe.ffn_hidden_size = 7;
                     moe.shared_ffn_hidden_size = 11;
                 }),
        moe_case("SigmoidWithBiasGroupsAndSharedExpert", "dots1",
                 [&](MoeConfig& moe) {
                     with_losses(moe);
                     moe.groups = 3;
                     moe.top_groups = 2;
                     moe.scaling = 1.7F;
                     moe.ffn_hidden_size = 7;
                     moe.shared_ffn_hidden_size = 14;
                     moe.sparse = {false, true};
                 }),
        moe_case("SigmoidNotNormalized", "dots1",
                 [&](MoeConfig& moe) {
                     with_losses(moe);
                     moe.normalize = false;
                     moe.ffn_hidden_size = 7;
                     moe.sparse = {false, true};
                 }),
    };
}

/// One microbatch by its definition.
class Fp64Block {
public:
    Fp64Block(const ModelConfig& config, int layer)
        : config_(config),
          names_(model_family(config.family).tensors),
          layer_(names_.layers + std::to_string(layer) + ".") {}

    /// Without residual.
    Rows forward(const Rows& x, const Tensors& weights) {
        const fp64::MlpActivation activation{config_.activation, true};
        fp64::Moe moe(
            config_.moe, activation,
            {.router = layer_ + names_.router,
             .gate_up = layer_ + names_.experts + "gate_up",
             .down = layer_ + names_.experts + "down",
             .correction_bias = config_.moe.correction_bias ? layer_ + names_.correction_bias : ""},
            weights, /*loss_weight=*/1);
        Rows y = moe.forward(x);
        router_loss = moe.router_loss();
        least_gap = moe.least_gap();
        if (!config_.moe.shared_expert) return y;
        const std::string shared = layer_ + names_.shared_expert;
        if (config_.moe.shared_gate) {
            const MoeConfig one{.experts = 1,
                                .top_k = 1,
                                .score = kernels::RouterScore::sigmoid,
                                .normalize = false};
            fp64::Moe gated(one, activation,
                            {.router = layer_ + names_.shared_gate,
                             .gate_up = shared + "gate_up",
                             .down = shared + "down"},
                            weights, 0);
            return fp64::sum(y, gated.forward(x));
        }
        const Rows inside =
            activation.forward(fp64::linear(x, weights.at(shared + "gate_up_proj.weight"), {}));
        return fp64::sum(
            y, fp64::linear(inside, weights.at(shared + names_.expert_down + ".weight"), {}));
    }
    double router_loss = 0, least_gap = INFINITY;

private:
    const ModelConfig& config_;
    const TensorNames& names_;
    std::string layer_;
};

Rows rows_of(const std::vector<float>& values, int64_t columns) {
    Rows rows;
    for (auto row = values.begin(); row != values.end(); row += columns) {
        rows.emplace_back(row, row + columns);
    }
    return rows;
}

/// What the gradients are of: <dy, y> of all microbatches, and the router's losses.
class Loss {
public:
    Loss(const ExpertRun& run, const ExpertResults& given) : block_(run.config, run.layer) {
        for (const auto& [name, values] : given.weights) {
            weights[name].assign(values.begin(), values.end());
        }
        for (size_t j = 0; j < given.x.size(); ++j) {
            x.push_back(rows_of(given.x[j], run.config.hidden_size));
            dy_.push_back(rows_of(given.dy[j], run.config.hidden_size));
        }
    }
    Rows output(size_t microbatch) { return block_.forward(x[microbatch], weights); }
    double value() {
        double sum = 0;
        for (size_t j = 0; j < x.size(); ++j) {
            const Rows y = output(j);
            sum += block_.router_loss;
            for (size_t n = 0; n < y.size(); ++n) {
                sum += fp64::dot(y[n].data(), dy_[j][n].data(), y[n].size());
            }
        }
        return sum;
    }
    double slope(double& at) {
        const double before = at;
        at = before + kStep;
        const double above = value();
        at = before - kStep;
        const double below = value();
        at = before;
        return (above - below) / (2 * kStep);
    }
    [[nodiscard]] double least_gap() const { return block_.least_gap; }

    Tensors weights;
    std::vector<Rows> x;

private:
    Fp64Block block_;
    std::vector<Rows> dy_;
};

/// Some elements, spread over the tensor, of the size that its gradient has.
void expect_slopes(const std::vector<float>& gradient, const auto& slope_of,
                   const std::string& what) {
    const float largest = std::abs(
        *std::ranges::max_element(gradient, {}, [](float value) { return std::abs(value); }));
    const size_t step = std::max<size_t>(1, gradient.size() / kElements) | 1;
    for (size_t i = 0; i < gradient.size(); i += step) {
        EXPECT_NEAR(gradient[i], slope_of(i), kBound * largest) << what << " " << i;
    }
}

class MoeBlock : public ::testing::TestWithParam<MoeCase> {};

TEST_P(MoeBlock, MakesWhatItsDefinitionSaysAndItsSlopes) {
    ExpertRun run{.config = GetParam().config, .tokens = kTokens};
    const ExpertResults whole = run_alone(run);
    const auto h = static_cast<size_t>(run.config.hidden_size);
    Loss loss(run, whole);
    for (size_t j = 0; j < whole.x.size(); ++j) {
        const Rows y = loss.output(j);
        // A step of a weight or a token moves a logit by a step at most.
        ASSERT_GT(loss.least_gap(), 4 * kStep) << "choose another seed";
        for (size_t i = 0; i < whole.y[j].size(); ++i) {
            const double expected = whole.residual[j][i] + y[i / h][i % h];
            EXPECT_NEAR(whole.y[j][i], expected, kBound * (1 + std::abs(expected))) << "y " << i;
        }
    }
    for (size_t j = 0; j < whole.x.size(); ++j) {
        expect_slopes(
            whole.dx[j], [&](size_t i) { return loss.slope(loss.x[j][i / h][i % h]); }, "dx");
    }
    EXPECT_THAT(whole.gradients, ::testing::SizeIs(::testing::Ge(3U)));
    for (const auto& [name, gradient] : whole.gradients) {
        expect_slopes(
            gradient,
            [&loss, &name = name](size_t i) { return loss.slope(loss.weights.at(name)[i]); }, name);
    }
    for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
        run.recompute = recompute;
        for (const bool split : {false, true}) {
            run.split = split;
            const ExpertResults other = run_alone(run);
            EXPECT_TRUE(other.y == whole.y && other.dx == whole.dx &&
                        other.gradients == whole.gradients)
                << static_cast<int>(recompute) << (split ? " split" : "");
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Routers, MoeBlock, ::testing::ValuesIn(moe_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(RouterWorkspace, HoldsTheSumsOfAllContextRanksHoweverFewTokensTheyHave) {
    ParameterList parameters;
    const Router router({.name = "gate", .hidden_size = 12, .experts = 6}, parameters);
    const std::unique_ptr<Device> device = make_host_device();
    const int64_t sums = 4 * 2 * 6 * size_of(DType::fp32);  // load and scores of each rank
    EXPECT_GE(
        router.workspace_bytes({.operators = device->operators(), .seq_length = 2, .context = 4}),
        sums);
}

}  // namespace
}  // namespace vocabpipe::testing
