// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/operators.hpp"
#include "tests/conformance/expert_cases.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

class Experts : public OnDevice {};

TEST_F(Experts, MoreThanTheKernelHoldsAreRefused) {
    Device device;
    const DeviceMatrix logits(device, Matrix(1, 513, DType::fp32));
    const DeviceMatrix one(device, Matrix(1, 1, DType::fp32));
    const DeviceArray<int32_t> choice(device, std::vector<int32_t>(1));
    EXPECT_THROW(
        cuda::router_forward(device.context(), logits, {}, {}, choice, one, logits, logits, one),
        UsageError);
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
