// SPDX-License-Identifier: Apache-2.0
// One step of AdamW on the parameters of GPT-2 124M: every element against fp64.
//
// Bounds: m adds two addends with four roundings, v of one sign with five; p adds a step with
// twelve more. The bf16 copy is the rounded p, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/bf16.hpp"
#include "kernels/cuda/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/cuda/error_factors.hpp"
#include "tests/kernels/cuda/large_matrix.hpp"
#include "vocabpipe/step_scalars.hpp"

namespace vocabpipe::kernels::test {
namespace {

constexpr AdamWCoefficients kCoefficients{};
constexpr StepScalars kSecondStep{.lr = 6e-4F,
                                  .bias_correction1 = 0.19F,
                                  .bias_correction2 = 0.0975F,
                                  .counted_tokens = 1,
                                  .gradient_scale = 0.7F,
                                  .update = 1};
constexpr float kWeightDecay = 0.1F;

/// Elements of every tensor.
std::vector<int64_t> parameter_sizes(int64_t vocab, int64_t positions, int64_t h, int layers) {
    std::vector<int64_t> sizes{vocab * h, positions * h};
    for (int layer = 0; layer < layers; ++layer) {
        sizes.insert(sizes.end(),
                     {h, h, 3 * h * h, 3 * h, h * h, h, h, h, 4 * h * h, 4 * h, 4 * h * h, h});
    }
    sizes.insert(sizes.end(), {h, h});
    return sizes;
}
const std::vector<int64_t> kSmallModel = parameter_sizes(50, 8, 12, 5);
const std::vector<int64_t> kRealModel =
    kOnStandIn ? kSmallModel : parameter_sizes(50257, 1024, 768, 12);

/// All tensors one after the other.
struct Flat {
    int64_t count;
    LargeMatrix master, gradient, exp_avg, exp_avg_sq;

    explicit Flat(int64_t size)
        : count(size),
          master(LargeMatrix::random(size, 1, DType::fp32, 1, -0.1F, 0.1F)),
          gradient(LargeMatrix::random(size, 1, DType::fp32, 2, -1e-3F, 1e-3F)),
          exp_avg(LargeMatrix::random(size, 1, DType::fp32, 3, -1e-3F, 1e-3F)),
          exp_avg_sq(LargeMatrix::random(size, 1, DType::fp32, 4, 0, 1e-6F)) {}
};

struct Stepped {
    LargeMatrix master, exp_avg, exp_avg_sq, weight;
};

/// Every other tensor decays.
float weight_decay(size_t tensor) {
    return tensor % 2 == 0 ? kWeightDecay : 0.0F;
}

Stepped step_all(const Flat& before, const std::vector<int64_t>& sizes) {
    Device device;
    const LargeOnDevice master(device, before.master), gradient(device, before.gradient);
    const LargeOnDevice exp_avg(device, before.exp_avg), exp_avg_sq(device, before.exp_avg_sq);
    const LargeOnDevice weight(device, before.count, 1, DType::bf16);
    std::vector<AdamWTensor> tensors;
    int64_t first = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
        const auto part = [&](const LargeOnDevice& all) {
            return std::span<float>(all.view().as<float>() + first, static_cast<size_t>(sizes[i]));
        };
        tensors.push_back(
            {.master = part(master),
             .gradient = part(gradient),
             .exp_avg = part(exp_avg),
             .exp_avg_sq = part(exp_avg_sq),
             .weight = Tensor(weight.view().as<Bf16>() + first, 1, sizes[i], DType::bf16),
             .weight_decay = weight_decay(i)});
        first += sizes[i];
    }
    const DeviceArray<StepScalars> scalars(device, {kSecondStep});
    cuda::adamw(device.context(), tensors, kCoefficients, scalars.data());
    return {master.download(), exp_avg.download(), exp_avg_sq.download(), weight.download()};
}

void expect_step(const Flat& before, const std::vector<int64_t>& sizes, const Stepped& after) {
    const std::string shape = " of AdamW, " + std::to_string(before.count) + " parameters, fp32";
    ErrorFactors p("p" + shape), m("m" + shape), v("v" + shape);
    int64_t wrong_weights = 0, unchanged = 0, first = 0;
    const StepScalars& s = kSecondStep;
    const double beta1 = kCoefficients.beta1, beta2 = kCoefficients.beta2;
    for (size_t i = 0; i < sizes.size(); ++i) {
        const double decay = 1 - static_cast<double>(s.lr) * weight_decay(i);
#pragma omp parallel num_threads(host_threads()) reduction(+ : wrong_weights, unchanged)
        {
            ErrorFactors p_here(""), m_here(""), v_here("");
#pragma omp for
            for (int64_t at = first; at < first + sizes[i]; ++at) {
                const double old = before.master.get(at, 0);
                const double g = s.gradient_scale * before.gradient.get(at, 0);
                const double old_m = before.exp_avg.get(at, 0);
                const double new_m = beta1 * old_m + (1 - beta1) * g;
                const double size = beta1 * std::abs(old_m) + (1 - beta1) * std::abs(g);
                const double new_v = beta2 * before.exp_avg_sq.get(at, 0) + (1 - beta2) * g * g;
                const double step = s.lr / static_cast<double>(s.bias_correction1) /
                                    (std::sqrt(new_v / s.bias_correction2) + kCoefficients.epsilon);
                m_here.add(at, 0, after.exp_avg.get(at, 0), new_m, 4 * kEps32 * size);
                v_here.add(at, 0, after.exp_avg_sq.get(at, 0), new_v, 5 * kEps32 * new_v);
                p_here.add(at, 0, after.master.get(at, 0), decay * old - step * new_m,
                           3 * kEps32 * std::abs(old) + 16 * kEps32 * step * size);
                const auto rounded = to_bf16(static_cast<float>(after.master.get(at, 0)));
                wrong_weights += after.weight.view().as<Bf16>()[at].bits == rounded.bits ? 0 : 1;
                unchanged += after.exp_avg_sq.get(at, 0) == before.exp_avg_sq.get(at, 0) ? 1 : 0;
            }
#pragma omp critical(adamw_errors)
            {
                p.add(p_here);
                m.add(m_here);
                v.add(v_here);
            }
        }
        first += sizes[i];
    }
    p.expect_within_bounds();
    m.expect_within_bounds();
    v.expect_within_bounds();
    EXPECT_EQ(wrong_weights, 0) << "bf16 copies" << shape;
    // beta2 v + (1 - beta2) g^2 = v happens, seldom.
    EXPECT_LT(static_cast<double>(unchanged), 8 + 1e-3 * static_cast<double>(before.count))
        << "v that did not change" << shape;
}

int64_t sum_of(const std::vector<int64_t>& sizes) {
    int64_t sum = 0;
    for (const int64_t size : sizes) sum += size;
    return sum;
}

class RealShapesAdamW : public OnDevice {};

TEST_F(RealShapesAdamW, UpdatesEveryParameterAsInFp64) {
    const Flat before(sum_of(kRealModel));
    expect_step(before, kRealModel, step_all(before, kRealModel));
}

TEST_F(RealShapesAdamW, AWrongElementIsFound) {
    const Flat before(sum_of(kSmallModel));
    Stepped after = step_all(before, kSmallModel);
    EXPECT_EQ(failures_of([&] { expect_step(before, kSmallModel, after); }), "");
    const int64_t last = before.count - 1;
    after.master.set(last, 0, before.master.get(last, 0));  // as if it had been left out
    EXPECT_THAT(failures_of([&] { expect_step(before, kSmallModel, after); }),
                testing::AllOf(testing::HasSubstr("p of AdamW"),
                               testing::HasSubstr("row " + std::to_string(last)),
                               testing::HasSubstr("missed its bound")));
}

}  // namespace
}  // namespace vocabpipe::kernels::test
