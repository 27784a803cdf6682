// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/bf16.hpp"
#include "tests/conformance/operator_test.hpp"
#include "tests/conformance/random_numbers.hpp"
#include "vocabpipe/step_scalars.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct Parameter {
    std::vector<float> master, exp_avg, exp_avg_sq;
    std::vector<Bf16> weight;  ///< or empty
    float weight_decay = 0;
    float lr_multiplier = 1;
};
using Parameters = std::vector<Parameter>;
using Gradients = std::vector<std::vector<float>>;

/// Sizes around slices and vectors, more tensors than a launch takes, some without a bf16 copy.
Parameters many_parameters() {
    Parameters result;
    for (int i = 0; i < 100; ++i) {
        const int64_t count = i == 0 ? 9001 : i == 50 ? 4096 : i % 9 == 8 ? 0 : 1 + i % 7;
        const auto seed = static_cast<unsigned>(10 * i);
        Parameter p{random_numbers(count, seed, 0.5F),
                    random_numbers(count, seed + 1, 1e-2F),
                    random_numbers(count, seed + 2, 1e-2F),
                    {},
                    i % 2 == 0 ? 0.1F : 0.0F,
                    i % 5 == 0 ? 0.3F : 1.0F};
        for (float& value : p.exp_avg_sq) value *= value;
        if (i % 3 != 0) p.weight.resize(p.master.size());
        result.push_back(std::move(p));
    }
    return result;
}

Parameter untrained(int64_t count) {
    const auto size = static_cast<size_t>(count);
    return {random_numbers(count, 1, 0.5F), std::vector<float>(size), std::vector<float>(size),
            std::vector<Bf16>(size), 0.1F};
}

Gradients gradients_of(const Parameters& parameters, unsigned seed) {
    Gradients result;
    for (const Parameter& p : parameters) {
        result.push_back(random_numbers(static_cast<int64_t>(p.master.size()), ++seed, 1e-2F));
    }
    return result;
}

Tensor weight_view(Bf16* data, size_t count) {
    return count == 0 ? Tensor() : Tensor(data, 1, static_cast<int64_t>(count), DType::bf16);
}

constexpr AdamWCoefficients kUsual{}, kSlow{.beta2 = 0.999F};

StepScalars scalars_of(int step, const AdamWCoefficients& coefficients) {
    const double beta2 = coefficients.beta2 == kSlow.beta2 ? 0.999 : 0.95;
    return {.lr = 1e-2F,
            .bias_correction1 = static_cast<float>(1 - std::pow(0.9, step)),
            .bias_correction2 = static_cast<float>(1 - std::pow(beta2, step)),
            .counted_tokens = 1,
            .gradient_scale = 0.7F,
            .update = 1};
}

/// By the fp64 loops.
void step_of_reference(Context& ctx, Parameters& parameters, const Gradients& gradients,
                       const AdamWCoefficients& coefficients, const StepScalars& scalars) {
    for (size_t i = 0; i < parameters.size(); ++i) {
        Parameter& p = parameters[i];
        const AdamWTensor tensor{.master = p.master,
                                 .gradient = gradients[i],
                                 .exp_avg = p.exp_avg,
                                 .exp_avg_sq = p.exp_avg_sq,
                                 .weight = weight_view(p.weight.data(), p.weight.size()),
                                 .weight_decay = p.weight_decay,
                                 .lr_multiplier = p.lr_multiplier};
        reference::adamw(ctx, {&tensor, 1}, coefficients, &scalars);
    }
}

class AdamW : public OperatorTest<> {
protected:
    /// One step of all tensors. `offset`: elements that the arrays start behind an aligned address.
    void step(Context& ctx, Parameters& parameters, const Gradients& gradients,
              const AdamWCoefficients& coefficients, const StepScalars& scalars,
              size_t offset = 0) const {
        const auto shifted = [&](auto values) {
            values.insert(values.begin(), offset, {});
            return up(values);
        };
        std::vector<UploadedArray<float>> masters, grads, m, v;
        std::vector<UploadedArray<Bf16>> weights;
        std::vector<AdamWTensor> tensors;
        for (size_t i = 0; i < parameters.size(); ++i) {
            const Parameter& p = parameters[i];
            masters.push_back(shifted(p.master));
            grads.push_back(shifted(gradients[i]));
            m.push_back(shifted(p.exp_avg));
            v.push_back(shifted(p.exp_avg_sq));
            weights.push_back(shifted(p.weight));
            tensors.push_back({.master = masters[i].span().subspan(offset),
                               .gradient = grads[i].span().subspan(offset),
                               .exp_avg = m[i].span().subspan(offset),
                               .exp_avg_sq = v[i].span().subspan(offset),
                               .weight = weight_view(weights[i].data() + offset, p.weight.size()),
                               .weight_decay = p.weight_decay,
                               .lr_multiplier = p.lr_multiplier});
        }
        ops().adamw(ctx, tensors, coefficients, up(std::vector{scalars}).data());
        const auto rest = [&](const auto& array) {
            auto values = array.download();
            values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(offset));
            return values;
        };
        for (size_t i = 0; i < parameters.size(); ++i) {
            parameters[i].master = rest(masters[i]);
            parameters[i].exp_avg = rest(m[i]);
            parameters[i].exp_avg_sq = rest(v[i]);
            parameters[i].weight = rest(weights[i]);
        }
    }
};

TEST_P(AdamW, FollowsTheTextbookInDoubleOverFiveSteps) {
    Parameters trained{untrained(1009)};
    std::vector<double> p(trained[0].master.begin(), trained[0].master.end()), m(1009), v(1009);
    for (int number = 1; number <= 5; ++number) {
        const Gradients gradients = gradients_of(trained, 100 + static_cast<unsigned>(number));
        step(ctx(), trained, gradients, kSlow, scalars_of(number, kSlow));
        for (size_t i = 0; i < p.size(); ++i) {
            const double g = 0.7 * static_cast<double>(gradients[0][i]);
            p[i] -= 1e-2 * 0.1 * p[i];
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.999 * v[i] + 0.001 * g * g;
            const double m_hat = m[i] / (1 - std::pow(0.9, number));
            const double v_hat = v[i] / (1 - std::pow(0.999, number));
            p[i] -= 1e-2 * m_hat / (std::sqrt(v_hat) + 1e-8);
        }
    }
    for (size_t i = 0; i < p.size(); ++i) {
        // 0.999 is an fp32, so 1 - 0.999 is off by 1.3e-5: half of that is in sqrt(v), in a step of
        // at most a few lr, five times.
        EXPECT_NEAR(trained[0].master[i], p[i], 5 * (3e-2 * 1e-5 + std::abs(p[i]) * 0x1p-23)) << i;
        EXPECT_NEAR(trained[0].exp_avg[i], m[i], 1e-6 * std::abs(m[i]) + 1e-8) << i;
        EXPECT_NEAR(trained[0].exp_avg_sq[i], v[i], 2e-5 * v[i]) << i;
    }
}

TEST_P(AdamW, MatchesTheReferenceOverFiveSteps) {
    Parameters trained{untrained(10007)}, expected = trained;
    for (int number = 1; number <= 5; ++number) {
        const Gradients gradients = gradients_of(trained, 100 + static_cast<unsigned>(number));
        step(ctx(), trained, gradients, kSlow, scalars_of(number, kSlow));
        step_of_reference(host, expected, gradients, kSlow, scalars_of(number, kSlow));
    }
    for (size_t i = 0; i < 10007; ++i) {
        ASSERT_NEAR(trained[0].master[i], expected[0].master[i], 5e-6) << i;
        ASSERT_NEAR(trained[0].exp_avg[i], expected[0].exp_avg[i], 1e-8) << i;
        ASSERT_NEAR(trained[0].exp_avg_sq[i], expected[0].exp_avg_sq[i],
                    1e-6 * static_cast<double>(expected[0].exp_avg_sq[i]))
            << i;
    }
}

TEST_P(AdamW, MatchesTheReferenceOverManyTensorsOfAllSizes) {
    const Parameters before = many_parameters();
    const Gradients grads = gradients_of(before, 5000);
    const StepScalars third = scalars_of(3, kUsual);
    Parameters expected = before;
    step_of_reference(host, expected, grads, kUsual, third);
    for (const size_t offset : {0, 1}) {
        Parameters after = before;
        step(ctx(), after, grads, kUsual, third, offset);
        for (size_t i = 0; i < before.size(); ++i) {
            for (size_t j = 0; j < before[i].master.size(); ++j) {
                // m adds two addends with four roundings, v of one sign with five; p adds a step
                // with ten more.
                const double m =
                    0.9 * std::abs(before[i].exp_avg[j]) + 0.07 * std::abs(grads[i][j]);
                const double v = expected[i].exp_avg_sq[j];
                ASSERT_NEAR(after[i].exp_avg[j], expected[i].exp_avg[j], 4 * kEps32 * m);
                ASSERT_NEAR(after[i].exp_avg_sq[j], v, 5 * kEps32 * v);
                const double size = 1e-2 / 0.271 * m / std::sqrt(v / 0.142625);
                ASSERT_NEAR(after[i].master[j], expected[i].master[j],
                            2 * kEps32 * std::abs(before[i].master[j]) + 16 * kEps32 * size)
                    << "tensor " << i << " element " << j;
                if (before[i].weight.empty()) continue;
                ASSERT_EQ(after[i].weight[j].bits, to_bf16(after[i].master[j]).bits);
            }
        }
    }
}

TEST_P(AdamW, GivesTheSameBitsForAnyThreads) {
    if (device().threads().size() == 1) return;
    const Parameters before{untrained(100003)};
    const Gradients gradients = gradients_of(before, 100);
    Parameters usual = before;
    step(ctx(), usual, gradients, kUsual, scalars_of(1, kUsual));
    for (Context* other : device().threads()) {
        Parameters after = before;
        step(*other, after, gradients, kUsual, scalars_of(1, kUsual));
        EXPECT_EQ(after[0].master, usual[0].master);
        EXPECT_EQ(after[0].exp_avg_sq, usual[0].exp_avg_sq);
        for (size_t i = 0; i < 100003; ++i) {
            ASSERT_EQ(after[0].weight[i].bits, to_bf16(after[0].master[i]).bits) << i;
        }
    }
}

TEST_P(AdamW, UpdatesAParameterAlikeWhereverTheSpanStarts) {
    Parameters whole{untrained(5000)}, parts;
    const Gradients gradients = gradients_of(whole, 7);
    Gradients cut;
    for (int64_t begin = 0; begin < 5000; begin += 1247) {
        const int64_t end = std::min<int64_t>(begin + 1247, 5000);
        const auto part = [&](const auto& values) {
            return std::vector(values.begin() + begin, values.begin() + end);
        };
        parts.push_back({part(whole[0].master), part(whole[0].exp_avg), part(whole[0].exp_avg_sq),
                         part(whole[0].weight), whole[0].weight_decay});
        cut.push_back(part(gradients[0]));
    }
    step(ctx(), whole, gradients, kUsual, scalars_of(1, kUsual));
    step(ctx(), parts, cut, kUsual, scalars_of(1, kUsual));
    std::vector<float> joined;
    for (const Parameter& part : parts) {
        joined.insert(joined.end(), part.master.begin(), part.master.end());
    }
    EXPECT_EQ(joined, whole[0].master);
}

TEST_P(AdamW, ChangesNothingInAStepThatIsNotTaken) {
    Parameters before = many_parameters();
    for (Parameter& p : before) {
        for (size_t i = 0; i < p.weight.size(); ++i) p.weight[i] = to_bf16(p.master[i]);
    }
    StepScalars skipped = scalars_of(3, kUsual);
    skipped.update = 0;
    Parameters after = before;
    step(ctx(), after, gradients_of(before, 5000), kUsual, skipped);
    for (size_t i = 0; i < before.size(); ++i) {
        EXPECT_EQ(after[i].master, before[i].master);
        EXPECT_EQ(after[i].exp_avg, before[i].exp_avg);
        EXPECT_EQ(after[i].exp_avg_sq, before[i].exp_avg_sq);
        for (size_t j = 0; j < before[i].weight.size(); ++j) {
            EXPECT_EQ(after[i].weight[j].bits, before[i].weight[j].bits);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, AdamW, testing::Combine(testing::ValuesIn(devices_under_test())),
                         kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test
