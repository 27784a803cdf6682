// SPDX-License-Identifier: Apache-2.0
// What runs once per step: norms, the report, AdamW.
#include "kernels/cuda/operators.hpp"

#include "kernels/bf16.hpp"
#include "kernels/host/operators.hpp"
#include "kernels/reference/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"

namespace vocabpipe::kernels::test {
namespace {

std::vector<float> random_numbers(int64_t count, unsigned seed, float scale = 1) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> value(0, scale);
    std::vector<float> result(static_cast<size_t>(count));
    for (float& number : result) number = value(engine);
    return result;
}

class SumOfSquares : public OnDevice {};
class StepReport : public OnDevice {};
class AdamW : public OnDevice {};

double sum_on_device(const Matrix& values, double start) {
    Device device;
    const DeviceMatrix matrix(device, values);
    const DeviceArray<double> sum(device, {start});
    cuda::sum_of_squares(device.context(), matrix, sum.data());
    return sum.download()[0];
}

TEST_F(SumOfSquares, AddsTheSumInDoubleForAnyShapeAndStride) {
    Context host({.poll = {}});
    for (const auto& [rows, cols] : {std::pair{0, 5}, {1, 1}, {1, 4096}, {1, 4099}, {61, 333}}) {
        const Matrix values = Matrix::random(rows, cols, DType::fp32, 5, -3, 3);  // with gaps
        Matrix dense(rows, cols, DType::fp32, 0);
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t col = 0; col < cols; ++col) dense.set(row, col, values.get(row, col));
        }
        double expected = 0;
        reference::sum_of_squares(host, values, &expected);
        // All addends are positive: at most 20313 additions of unit roundoff 2^-53.
        EXPECT_NEAR(sum_on_device(values, 0), expected, 20313 * 0x1p-53 * expected);
        EXPECT_EQ(sum_on_device(dense, 0), sum_on_device(values, 0));
        EXPECT_EQ(sum_on_device(dense, 2.5), 2.5 + sum_on_device(dense, 0));
    }
}

TEST_F(SumOfSquares, IsNotFiniteIfAnyElementIsNotAndFiniteForEveryFiniteFloat) {
    for (const double bad : {NAN, INFINITY, -INFINITY}) {
        Matrix values = Matrix::random(3, 999, DType::fp32, 6);
        values.set(2, 997, bad);
        EXPECT_FALSE(std::isfinite(sum_on_device(values, 0)));
        values.set(2, 997, std::numeric_limits<float>::max());
        EXPECT_TRUE(std::isfinite(sum_on_device(values, 0)));
    }
}

TEST_F(StepReport, WeightedSumIsThatOfDoubles) {
    for (const int64_t count : {0, 1, 255, 1000}) {
        Device device;
        const auto values = random_numbers(count, 1);
        const auto weights = random_numbers(count, 2);
        const DeviceArray<float> device_values(device, values);
        const DeviceArray<float> device_weights(device, weights);
        const DeviceArray<double> sum(device, {NAN});  // overwritten
        cuda::weighted_sum(device.context(), device_values, device_weights, sum.data());
        double expected = 0;
        double magnitude = 0;
        for (size_t i = 0; i < values.size(); ++i) {
            expected += static_cast<double>(values[i]) * weights[i];
            magnitude += std::abs(static_cast<double>(values[i]) * weights[i]);
        }
        EXPECT_NEAR(sum.download()[0], expected, 2 * 1000 * 0x1p-53 * magnitude);
    }
}

TEST_F(StepReport, AddUpKeepsTheOrder) {
    Device device;
    const DeviceArray<double> values(device, {1e16, 1.0, -1e16, 3.0});
    const DeviceArray<double> sum(device, {0.5});
    cuda::add_up(device.context(), values, sum.data());
    EXPECT_EQ(sum.download()[0], (((0.5 + 1e16) + 1.0) - 1e16) + 3.0);
    cuda::add_up(device.context(), {}, sum.data());
    EXPECT_EQ(sum.download()[0], (((0.5 + 1e16) + 1.0) - 1e16) + 3.0);
}

StepScalars report_on_device(const std::vector<double>& reports, int64_t slots,
                             const StepScalars& before, int64_t more = 0) {
    Device device;
    const DeviceArray<double> device_reports(device, reports);
    const DeviceArray<StepScalars> scalars(device, {before});
    cuda::finish_report(device.context(), device_reports, slots, slots - 2 - more, scalars.data());
    return scalars.download()[0];
}

TEST_F(StepReport, IsThatOfTheHostForAnyNumberOfSlotsAndRanks) {
    Context host({.poll = {}});
    for (const int64_t slots : {2, 3, 255, 256, 257, 258, 700}) {
        for (const int64_t ranks : {1, 3}) {
            for (const float clip : {0.0F, 0.25F, 1e6F}) {
                std::vector<double> reports;
                for (const float value : random_numbers(slots * ranks, 3)) {
                    reports.push_back(value * value);
                }
                const StepScalars before{.clip_grad = clip, .counted_tokens = 5};
                StepScalars expected = before;
                const int64_t more = slots > 256 ? 255 : 0;  // entries of no concern
                host::operators().finish_report(host, reports, slots, slots - 2 - more, &expected);
                const StepScalars actual = report_on_device(reports, slots, before, more);
                EXPECT_EQ(actual.loss, expected.loss);
                EXPECT_EQ(actual.stops, expected.stops);
                EXPECT_EQ(actual.update, 1);
                EXPECT_EQ(actual.counted_tokens, 5);
                // The same additions in the same order; the square root and quotient are rounded
                // correctly on both.
                EXPECT_DOUBLE_EQ(actual.grad_norm, expected.grad_norm);
                EXPECT_FLOAT_EQ(actual.gradient_scale, expected.gradient_scale);
            }
        }
    }
}

TEST_F(StepReport, AllowsNoUpdateWithoutTokensOrWithANormThatIsNotFinite) {
    const StepScalars counted{.clip_grad = 1, .counted_tokens = 5};
    EXPECT_EQ(report_on_device({1, 2, 0}, 3, counted).update, 1);
    EXPECT_EQ(report_on_device({1, 2, 0}, 3, {.clip_grad = 1, .counted_tokens = 0}).update, 0);
    EXPECT_EQ(report_on_device({NAN, 2, 0}, 3, counted).update, 0);
    EXPECT_EQ(report_on_device({INFINITY, 2, 0}, 3, counted).update, 0);
    EXPECT_EQ(report_on_device({1, INFINITY, 0}, 3, counted).update, 0) << "of the loss";
}

struct Parameter {
    std::vector<float> master, exp_avg, exp_avg_sq;
    std::vector<Bf16> weight;  ///< or empty
    float weight_decay = 0;
    float lr_multiplier = 1;
};

/// Sizes around slices and vectors, more tensors than a launch takes, some without a bf16 copy.
std::vector<Parameter> parameters() {
    std::vector<Parameter> result;
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

std::vector<std::vector<float>> gradients(const std::vector<Parameter>& of) {
    std::vector<std::vector<float>> result;
    unsigned seed = 5000;
    for (const Parameter& p : of) {
        result.push_back(random_numbers(static_cast<int64_t>(p.master.size()), ++seed, 1e-2F));
    }
    return result;
}

Tensor weight_view(void* data, size_t count) {
    return count == 0 ? Tensor() : Tensor(data, 1, static_cast<int64_t>(count), DType::bf16);
}

constexpr AdamWCoefficients kCoefficients{};

/// One step on the device. `offset`: elements that the arrays start behind an aligned address.
std::vector<Parameter> step_on_device(const std::vector<Parameter>& before,
                                      const StepScalars& scalars, int64_t offset) {
    Device device;
    const auto shifted = [&](const auto& values) {
        auto padded = values;
        padded.insert(padded.begin(), static_cast<size_t>(offset), {});
        return padded;
    };
    const auto grads = gradients(before);
    std::vector<DeviceArray<float>> masters, gradients_on_device, m, v;
    std::vector<DeviceArray<Bf16>> weights;
    std::vector<AdamWTensor> tensors;
    const auto skip = static_cast<size_t>(offset);
    for (size_t i = 0; i < before.size(); ++i) {
        masters.emplace_back(device, shifted(before[i].master));
        gradients_on_device.emplace_back(device, shifted(grads[i]));
        m.emplace_back(device, shifted(before[i].exp_avg));
        v.emplace_back(device, shifted(before[i].exp_avg_sq));
        weights.emplace_back(device, shifted(before[i].weight));
        tensors.push_back({.master = masters[i].span().subspan(skip),
                           .gradient = gradients_on_device[i].span().subspan(skip),
                           .exp_avg = m[i].span().subspan(skip),
                           .exp_avg_sq = v[i].span().subspan(skip),
                           .weight = weight_view(weights[i].data() + skip, before[i].weight.size()),
                           .weight_decay = before[i].weight_decay,
                           .lr_multiplier = before[i].lr_multiplier});
    }
    const DeviceArray<StepScalars> device_scalars(device, {scalars});
    cuda::adamw(device.context(), tensors, kCoefficients, device_scalars.data());
    const auto rest = [&](auto values) {
        values.erase(values.begin(), values.begin() + offset);
        return values;
    };
    std::vector<Parameter> after;
    for (size_t i = 0; i < before.size(); ++i) {
        after.push_back({rest(masters[i].download()), rest(m[i].download()), rest(v[i].download()),
                         rest(weights[i].download()), before[i].weight_decay,
                         before[i].lr_multiplier});
    }
    return after;
}

const StepScalars kThirdStep{.lr = 1e-2F,
                             .bias_correction1 = 0.271F,
                             .bias_correction2 = 0.142625F,
                             .counted_tokens = 1,
                             .gradient_scale = 0.7F,
                             .update = 1};

TEST_F(AdamW, MatchesTheReferenceKernelOverManyTensorsOfAllSizes) {
    Context host({.poll = {}});
    const auto before = parameters();
    const auto grads = gradients(before);
    for (const int64_t offset : {0, 1}) {
        const auto after = step_on_device(before, kThirdStep, offset);
        for (size_t i = 0; i < before.size(); ++i) {
            Parameter expected = before[i];
            const AdamWTensor tensor{.master = expected.master,
                                     .gradient = grads[i],
                                     .exp_avg = expected.exp_avg,
                                     .exp_avg_sq = expected.exp_avg_sq,
                                     .weight = {},
                                     .weight_decay = before[i].weight_decay,
                                     .lr_multiplier = before[i].lr_multiplier};
            reference::adamw(host, {&tensor, 1}, kCoefficients, &kThirdStep);
            for (size_t j = 0; j < expected.master.size(); ++j) {
                // m adds two addends with four roundings, v of one sign with five; p adds a step
                // with ten more.
                const double m =
                    0.9 * std::abs(before[i].exp_avg[j]) + 0.07 * std::abs(grads[i][j]);
                const double v = expected.exp_avg_sq[j];
                ASSERT_NEAR(after[i].exp_avg[j], expected.exp_avg[j], 4 * kEps32 * m);
                ASSERT_NEAR(after[i].exp_avg_sq[j], expected.exp_avg_sq[j], 5 * kEps32 * v);
                const double step = 1e-2 / 0.271 * m / std::sqrt(v / 0.142625);
                ASSERT_NEAR(after[i].master[j], expected.master[j],
                            2 * kEps32 * std::abs(before[i].master[j]) + 16 * kEps32 * step)
                    << "tensor " << i << " element " << j;
                if (before[i].weight.empty()) continue;
                ASSERT_EQ(after[i].weight[j].bits, to_bf16(after[i].master[j]).bits);
            }
        }
    }
}

TEST_F(AdamW, ChangesNothingWithoutAnUpdate) {
    const auto before = parameters();
    StepScalars scalars = kThirdStep;
    scalars.update = 0;
    const auto after = step_on_device(before, scalars, 0);
    for (size_t i = 0; i < before.size(); ++i) {
        EXPECT_EQ(after[i].master, before[i].master);
        EXPECT_EQ(after[i].exp_avg, before[i].exp_avg);
        EXPECT_EQ(after[i].exp_avg_sq, before[i].exp_avg_sq);
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
