// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "kernels/cuda/operators.hpp"
#include "kernels/host/operators.hpp"
#include "kernels/reference/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/expert_cases.hpp"
#include "tests/kernels/router_cases.hpp"
#include "tests/kernels/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

class RouterOnDevice : public OnDeviceWithParam<RouterCase> {
protected:
    Context host{{.poll = {}}};
};

TEST_P(RouterOnDevice, AgreesWithTheReferenceInBothDirections) {
    Device device;
    const RouterProblem p(GetParam());
    const Routed exact = p.exact(host);
    Routed actual(p.logits.rows(), p.logits.cols(), p.options.top_k, DType::fp32);
    const DeviceMatrix logits(device, p.logits), bias(device, p.bias);
    const DeviceMatrix weights(device, actual.weights), load(device, actual.load);
    const DeviceMatrix score_sums(device, actual.score_sums), log_z(device, actual.log_z);
    const DeviceArray<int32_t> choice(device, actual.choice);
    cuda::router_forward(device.context(), logits, p.with_bias ? bias.view() : ConstTensor{},
                         p.options, choice, weights, load, score_sums, log_z);
    const DeviceMatrix dweights(device, p.dweights);
    const DeviceMatrix dlogits(device, Matrix(p.logits.rows(), p.logits.cols(), DType::fp32));
    cuda::router_backward(device.context(), logits, log_z, choice, dweights, load, p.options,
                          p.scales, dlogits);
    actual.choice = choice.download();
    actual.weights = weights.download();
    actual.load = load.download();
    actual.score_sums = score_sums.download();
    actual.log_z = log_z.download();
    expect_routed(actual, exact);
    expect_gradient(dlogits.download(), p, exact, host);
}

INSTANTIATE_TEST_SUITE_P(Families, RouterOnDevice, testing::ValuesIn(router_cases()),
                         [](const auto& info) { return info.param.name; });

class Experts : public OnDevice {
protected:
    Context host{{.poll = {}}};
};

TEST_F(Experts, OfEqualScoresTheSmallerIndexIsChosen) {
    Device device;
    const int64_t tokens = 3, experts = 40;
    const DeviceMatrix logits(
        device,
        Matrix(tokens, experts, DType::fp32).mapped(DType::fp32, [](double) { return 1.0; }));
    for (const auto& [groups, top_groups] : {std::pair{1, 1}, {8, 2}}) {
        const DeviceArray<int32_t> choice(device, std::vector<int32_t>(tokens * 6));
        const DeviceMatrix weights(device, Matrix(tokens, 6, DType::fp32));
        const DeviceMatrix load(device, Matrix(1, experts, DType::fp32));
        const DeviceMatrix sums(device, Matrix(1, experts, DType::fp32));
        const DeviceMatrix log_z(device, Matrix(tokens, 1, DType::fp32));
        cuda::router_forward(device.context(), logits, {},
                             {.top_k = 6, .groups = groups, .top_groups = top_groups}, choice,
                             weights, load, sums, log_z);
        const auto chosen = choice.download();
        for (size_t i = 0; i < chosen.size(); ++i)
            EXPECT_EQ(chosen[i], static_cast<int32_t>(i % 6));
    }
}

TEST_F(Experts, ChoicesOfNaNAreDifferentExpertsThatExist) {
    Device device;
    const Matrix poison(2, 40, DType::fp32);  // NaN
    const DeviceMatrix logits(device, poison), weights(device, Matrix(2, 6, DType::fp32));
    const DeviceArray<int32_t> choice(device, std::vector<int32_t>(12, -1));
    const DeviceMatrix load(device, Matrix(1, 40, DType::fp32));
    const DeviceMatrix sums(device, Matrix(1, 40, DType::fp32));
    const DeviceMatrix log_z(device, Matrix(2, 1, DType::fp32));
    cuda::router_forward(device.context(), logits, {}, {.top_k = 6, .groups = 8, .top_groups = 3},
                         choice, weights, load, sums, log_z);
    auto chosen = choice.download();
    for (size_t n = 0; n < 2; ++n) {
        std::sort(chosen.begin() + static_cast<std::ptrdiff_t>(6 * n),
                  chosen.begin() + static_cast<std::ptrdiff_t>(6 * n + 6));
        EXPECT_GE(chosen[6 * n], 0);
        EXPECT_LT(chosen[6 * n + 5], 40);
        for (size_t j = 1; j < 6; ++j) EXPECT_LT(chosen[6 * n + j - 1], chosen[6 * n + j]);
    }
}

TEST_F(Experts, MoreThanTheKernelHoldsAreRefused) {
    Device device;
    const DeviceMatrix logits(device, Matrix(1, 513, DType::fp32));
    const DeviceMatrix one(device, Matrix(1, 1, DType::fp32));
    const DeviceArray<int32_t> choice(device, std::vector<int32_t>(1));
    EXPECT_THROW(
        cuda::router_forward(device.context(), logits, {}, {}, choice, one, logits, logits, one),
        UsageError);
}

TEST_F(Experts, OrderAndRowsAgreeWithTheReference) {
    for (const DType type : {DType::fp32, DType::bf16}) {
        for (const ChoiceCase& c : choice_cases()) {
            if (c.choice.size() > 800) continue;  // the stand-in is slow
            for (const auto& [h, gap] : {std::pair{37, 3}, {64, 8}}) {
                SCOPED_TRACE(testing::Message() << c.name << ", h " << h << " " << name_of(type));
                Device device;
                const auto slots = static_cast<int64_t>(c.choice.size());
                const int64_t tokens = slots / c.top_k;
                std::vector<int32_t> begin(static_cast<size_t>(c.experts) + 1),
                    rows(c.choice.size());
                auto slot_numbers = rows;
                reference::sort_by_expert(host, c.choice, begin, rows, slot_numbers);
                const DeviceArray<int32_t> choice(device, c.choice);
                const DeviceArray<int32_t> row_begin(device,
                                                     std::vector<int32_t>(begin.size(), -7));
                const DeviceArray<int32_t> row_of_slot(device,
                                                       std::vector<int32_t>(rows.size(), -7));
                const DeviceArray<int32_t> slot_of_row(device,
                                                       std::vector<int32_t>(rows.size(), -7));
                cuda::sort_by_expert(device.context(), choice, row_begin, row_of_slot, slot_of_row);
                std::vector<int32_t> on_host(begin.size());
                cuda::read_to_host(device.context(), row_begin, on_host);
                EXPECT_EQ(on_host, begin);
                EXPECT_EQ(row_of_slot.download(), rows);
                EXPECT_EQ(slot_of_row.download(), slot_numbers);

                const auto random = [gap = gap](int64_t count, int64_t width, DType of,
                                                unsigned seed) {
                    Matrix result(count, width, of, gap);
                    const auto values = Matrix::random(count, width, of, seed);
                    for (int64_t row = 0; row < count; ++row) {
                        for (int64_t col = 0; col < width; ++col) {
                            result.set(row, col, values.get(row, col));
                        }
                    }
                    return result;
                };
                const Matrix x = random(tokens, h, type, 1), y = random(slots, h, type, 2);
                const Matrix weights = random(tokens, c.top_k, DType::fp32, 3);
                const Matrix residual = random(tokens, h, type, 4);
                const DeviceMatrix device_x(device, x), device_y(device, y);
                const DeviceMatrix device_weights(device, weights);
                for (const bool weighted : {false, true}) {
                    const ConstTensor some = weighted ? weights.view() : ConstTensor{};
                    const ConstTensor device_some =
                        weighted ? device_weights.view() : ConstTensor{};
                    const DeviceMatrix gathered(device, Matrix(slots, h, type, gap));
                    Matrix exact(slots, h, DType::fp64);
                    cuda::gather_rows(device.context(), device_x, slot_of_row, c.top_k, device_some,
                                      gathered);
                    reference::gather_rows(host, x, slot_numbers, c.top_k, some, exact);
                    expect_close(gathered.download(), exact, rounded_once(exact, type));

                    const DeviceMatrix sum(device, residual);  // in place
                    Matrix exact_sum(tokens, h, DType::fp64);
                    cuda::combine_rows(device.context(), device_y, row_of_slot, c.top_k,
                                       device_some, weighted ? sum.view() : ConstTensor{}, sum);
                    reference::combine_rows(host, y, rows, c.top_k, some,
                                            weighted ? residual.view() : ConstTensor{}, exact_sum);
                    expect_close(sum.download(), exact_sum, sum_of_slots(exact_sum, c.top_k, type));
                }
                const DeviceMatrix dweights(device, Matrix(tokens, c.top_k, DType::fp32));
                Matrix exact_dweights(tokens, c.top_k, DType::fp64);
                const Matrix dy = random(slots, h, type, 5);
                const DeviceMatrix device_dy(device, dy);
                cuda::combine_backward_weights(device.context(), device_dy, device_y, slot_of_row,
                                               dweights);
                reference::combine_backward_weights(host, dy, y, slot_numbers, exact_dweights);
                expect_close(dweights.download(), exact_dweights, [&, width = h](int64_t, int64_t) {
                    return static_cast<double>((width + 2) * width) * kEps32;
                });

                Matrix exact_scaled(slots, h, DType::fp64);
                cuda::scale_rows(device.context(), device_y, slot_of_row, device_weights, device_y);
                reference::scale_rows(host, y, slot_numbers, weights, exact_scaled);
                expect_close(device_y.download(), exact_scaled, rounded_once(exact_scaled, type));
            }
        }
    }
}

TEST_F(Experts, SlotsWithoutARowAddNothing) {
    Device device;
    Matrix rows(2, 1, DType::fp32);
    rows.set(0, 0, 3);
    rows.set(1, 0, 5);
    const DeviceMatrix device_rows(device, rows), y(device, Matrix(3, 1, DType::fp32));
    const DeviceArray<int32_t> row_of_slot(device, {0, 1, -1, 1, -1, -1});
    cuda::combine_rows(device.context(), device_rows, row_of_slot, 2, {}, {}, y);
    const Matrix sum = y.download();
    EXPECT_EQ(sum.get(0, 0), 8);
    EXPECT_EQ(sum.get(1, 0), 5);
    EXPECT_EQ(sum.get(2, 0), 0);
}

TEST_F(Experts, PartsAgreeWithTheReference) {
    for (const DType type : {DType::fp32, DType::bf16}) {
        for (const int64_t h : {37, 64}) {
            Device device;
            const int64_t tokens = 20;
            const auto first = Matrix::random(20, h, type, 1), last = Matrix::random(5, h, type, 2);
            const auto residual = Matrix::random(tokens, h, type, 3);
            std::vector<int32_t> slots;
            for (int32_t n = 0; n < tokens; ++n) {
                slots.insert(slots.end(), {19 - n, -1, n % 4 == 0 ? n / 4 : -1});
            }
            const DeviceMatrix device_first(device, first), device_last(device, last);
            const DeviceMatrix sum(device, residual);  // in place
            const DeviceArray<int32_t> row_of_slot(device, slots);
            cuda::combine_parts(
                device.context(),
                std::vector<ConstTensor>{device_first.view(), {}, device_last.view()}, row_of_slot,
                sum.view(), sum);
            Matrix exact(tokens, h, DType::fp64);
            reference::combine_parts(host, std::vector<ConstTensor>{first.view(), {}, last.view()},
                                     slots, residual, exact);
            expect_close(sum.download(), exact, sum_of_slots(exact, 2, type));
        }
    }
}

/// Sums of `terms` products of numbers in [-1, 1], each rounded once.
void expect_same_sums(const DeviceMatrix& left, const DeviceMatrix& right, int64_t terms,
                      DType type) {
    const Matrix want = right.download();
    const double count = static_cast<double>(terms);
    expect_close(left.download(), want, [&](int64_t row, int64_t col) {
        return 2 * ((count + 3) * kEps32 * (count + 1) +
                    unit_roundoff(type) * 1.02 * std::abs(want.get(row, col)));
    });
}

/// Products of experts one by one and, where the program has that (grouped_launch.hpp), all in one
/// launch, which wants rows that begin at multiples of 16 bytes.
class GroupedProducts : public OnDeviceWithParam<bool> {
protected:
    [[nodiscard]] int64_t gap() const { return GetParam() ? 8 : 3; }
};

/// Algorithms are those of a multiple of 128 rows, so bits may differ.
TEST_P(GroupedProducts, AgreeWithALinearLayerPerExpert) {
    for (const DType type : {DType::fp32, DType::bf16}) {
        for (const ExpertRows& c : expert_rows()) {
            SCOPED_TRACE(testing::Message() << c.name << " " << name_of(type));
            Device device;
            device.context().cuda().group_experts(GetParam());
            const auto random = [&](int64_t count, int64_t cols, DType of, unsigned seed) {
                return random_with_gap(count, cols, of, gap(), seed);
            };
            const int64_t rows = c.row_begin.back() + 2, experts = std::ssize(c.row_begin) - 1;
            const int64_t in = 40, out = 24;
            const Matrix before_y = random(rows, out, type, 4);
            const Matrix before_dx = random(rows, in, type, 5);
            const DeviceMatrix x(device, random(rows, in, type, 1));
            const DeviceMatrix dy(device, random(rows, out, type, 2));
            const DeviceMatrix w(device, random(experts * out, in, type, 3));
            const DeviceMatrix y(device, before_y), own_y(device, before_y);
            const DeviceMatrix dx(device, before_dx), own_dx(device, before_dx);
            cuda::grouped_linear_forward(device.context(), x, w, c.rows(), 0, y);
            cuda::grouped_linear_backward_input(device.context(), dy, w, c.rows(), dx);
            for (const bool accumulate : {false, true}) {
                const Matrix before = accumulate ? random(experts * out, in, DType::fp32, 6)
                                                 : Matrix(experts * out, in, DType::fp32, gap());
                const DeviceMatrix dw(device, before), own_dw(device, before);
                cuda::grouped_linear_backward_weight(device.context(), dy, x, c.rows(), dw,
                                                     accumulate);
                for (int64_t e = 0; e < experts; ++e) {
                    const int64_t first = c.row_begin[static_cast<size_t>(e)];
                    const int64_t count = c.row_begin[static_cast<size_t>(e) + 1] - first;
                    const auto own = [&](const DeviceMatrix& of) {
                        return of.view().row_range(first, count);
                    };
                    const Tensor w_e = w.view().row_range(e * out, out);
                    cuda::linear_forward(device.context(), own(x), w_e, {}, own(own_y));
                    cuda::linear_backward_input(device.context(), own(dy), w_e, own(own_dx));
                    cuda::linear_backward_weight(device.context(), own(dy), own(x),
                                                 own_dw.view().row_range(e * out, out), {},
                                                 accumulate);
                }
                expect_same_sums(dw, own_dw, rows, DType::fp32);
                EXPECT_TRUE(dw.download().gaps_are_intact());
            }
            expect_same_sums(y, own_y, in, type);
            expect_same_sums(dx, own_dx, out, type);
            const Matrix y_now = y.download(), dx_now = dx.download();
            for (const int64_t outside : {rows - 2, rows - 1}) {
                for (int64_t col = 0; col < out; ++col) {
                    EXPECT_EQ(y_now.get(outside, col), before_y.get(outside, col));
                }
                for (int64_t col = 0; col < in; ++col) {
                    EXPECT_EQ(dx_now.get(outside, col), before_dx.get(outside, col));
                }
            }
        }
    }
}

TEST_P(GroupedProducts, WeightGradientOfAnExpertWithoutRowsIsZero) {
    Device device;
    device.context().cuda().group_experts(GetParam());
    const DeviceMatrix x(device, random_with_gap(4, 8, DType::bf16, gap(), 1));
    const DeviceMatrix dy(device, random_with_gap(4, 8, DType::bf16, gap(), 2));
    const DeviceMatrix dw(device, Matrix(16, 8, DType::fp32, gap()));
    const std::vector<int32_t> row_begin{0, 4, 4};
    cuda::grouped_linear_backward_weight(device.context(), dy, x, ranges_of(row_begin), dw, false);
    const Matrix result = dw.download();
    for (int64_t row = 8; row < 16; ++row) {
        for (int64_t col = 0; col < 8; ++col) EXPECT_EQ(result.get(row, col), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(Ways, GroupedProducts, testing::Bool(), [](const auto& info) {
    return info.param ? "in_one_launch" : "one_by_one";
});

}  // namespace
}  // namespace vocabpipe::kernels::test
