// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include "kernels/cuda/column_sums.hpp"
#include "kernels/reference/operators.hpp"
#include "tests/kernels/activations.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/cuda/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct Sizes {
    int64_t n, h;
    int64_t gap;
};
const Sizes kSizes[] = {{1, 1, 3}, {3, 17, 3}, {17, 129, 3}, {5, 64, 8}, {6, 40, 0}, {1, 24, 0}};

using Pair = std::tuple<DType, DType>;

class CudaElementwise : public OnDeviceWithParam<Pair> {
protected:
    DType first() const { return std::get<0>(GetParam()); }
    DType second() const { return std::get<1>(GetParam()); }
    Context host{{.threads = 1, .poll = {}}};  ///< for the reference kernels
};

TEST_P(CudaElementwise, AddRoundsTheExactSum) {
    Device device;
    for (const auto& [n, h, gap] : kSizes) {
        for (const DType out_type : {DType::fp32, DType::bf16}) {
            SCOPED_TRACE(testing::Message() << n << " x " << h << " -> " << name_of(out_type));
            const auto a = random_with_gap(n, h, first(), gap, 1);
            const auto b = random_with_gap(n, h, second(), gap, 2);
            const DeviceMatrix da(device, a), db(device, b),
                out(device, Matrix(n, h, out_type, gap));
            cuda::add(device.context(), da, db, out);
            Matrix exact(n, h, DType::fp64);
            reference::add(host, a, b, exact);
            // rounded to fp32 and then to out's type
            const auto bound = [&](int64_t row, int64_t col) {
                return std::abs(exact.get(row, col)) * (kEps32 + unit_roundoff(out_type)) * 1.01;
            };
            const Matrix result = out.download();
            expect_close(result, exact, bound);
            if (first() == out_type) {
                cuda::add(device.context(), da, db, da);
                EXPECT_TRUE(da.download().same_bits(result)) << "in place of a";
            } else if (second() == out_type) {
                cuda::add(device.context(), da, db, db);
                EXPECT_TRUE(db.download().same_bits(result)) << "in place of b";
            }
        }
    }
}

TEST_P(CudaElementwise, AddRepeatsARowOfStrideZero) {
    Device device;
    for (const int64_t gap : {3, 8}) {
        const auto a = random_with_gap(6, 16, first(), gap, 1);
        const auto row = random_with_gap(1, 16, second(), gap, 2);
        const DeviceMatrix da(device, a), drow(device, row),
            out(device, Matrix(6, 16, DType::fp32));
        const ConstTensor everywhere(drow.view().data, 6, 16, 0, second());
        cuda::add(device.context(), da, everywhere, out);
        const Matrix result = out.download();
        for (int64_t i = 0; i < 96; ++i) {
            EXPECT_NEAR(result.get(i / 16, i % 16), a.get(i / 16, i % 16) + row.get(0, i % 16),
                        2 * kEps32);
        }
    }
}

TEST_P(CudaElementwise, ConvertGivesTheBitsOfTheReference) {
    Device device;
    for (const auto& [n, h, gap] : kSizes) {
        SCOPED_TRACE(testing::Message() << n << " x " << h);
        const auto from = random_with_gap(n, h, first(), gap, 1, -1e4, 1e4);
        const DeviceMatrix dfrom(device, from), to(device, Matrix(n, h, second(), gap));
        cuda::convert(device.context(), dfrom, to);
        Matrix exact(n, h, second(), gap);
        reference::convert(host, from, exact);
        const Matrix result = to.download();
        EXPECT_TRUE(result.same_bits(exact));
        EXPECT_TRUE(result.gaps_are_intact());
    }
}

TEST_P(CudaElementwise, ActivationsAgreeWithTheReferenceInBothDirections) {
    Device device;
    const DType in = first(), out = second();
    for (const Activation activation : kActivations) {
        for (const auto& [n, h, gap] : kSizes) {
            SCOPED_TRACE(testing::Message() << name_of(activation) << ": " << n << " x " << h);
            const auto x = random_with_gap(n, h, in, gap, 1, -8.0, 8.0);
            const auto dy = random_with_gap(n, h, in, gap, 2);
            Matrix exact_y(n, h, DType::fp64), exact_dx(n, h, DType::fp64);
            reference::activation_forward(host, activation, x, exact_y);
            reference::activation_backward(host, activation, dy, x, exact_dx);
            const DeviceMatrix ddy(device, dy), dx_in(device, x);
            const DeviceMatrix y(device, Matrix(n, h, out, gap));
            const DeviceMatrix dx(device, Matrix(n, h, out, gap));
            cuda::activation_forward(device.context(), activation, dx_in, y);
            cuda::activation_backward(device.context(), activation, ddy, dx_in, dx);
            const double roundoff = unit_roundoff(out) * 1.01;
            expect_close(y.download(), exact_y, [&](int64_t row, int64_t col) {
                const double value = std::abs(exact_y.get(row, col));
                return (activation_error(activation, x.get(row, col)) + roundoff) * value + 1e-14;
            });
            const Matrix gradient = dx.download();
            expect_close(gradient, exact_dx, [&](int64_t row, int64_t col) {
                return activation_slope_error(x.get(row, col)) +
                       roundoff * std::abs(exact_dx.get(row, col));
            });
            if (in != out) continue;
            cuda::activation_backward(device.context(), activation, ddy, dx_in, ddy);
            EXPECT_TRUE(ddy.download().same_bits(gradient)) << "in place of dy";
            cuda::activation_forward(device.context(), activation, dx_in, dx_in);
            EXPECT_TRUE(dx_in.download().same_bits(y.download())) << "in place of x";
        }
    }
}

std::string name_of_conversion(const testing::TestParamInfo<Pair>& info) {
    return std::string(name_of(std::get<0>(info.param))) + "_and_" +
           name_of(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Types, CudaElementwise,
                         testing::Combine(testing::Values(DType::fp32, DType::bf16),
                                          testing::Values(DType::fp32, DType::bf16)),
                         name_of_conversion);

class CudaElements : public OnDevice {};

TEST_F(CudaElements, InfinityAndNanSurviveRounding) {
    Device device;
    Matrix from(1, 8, DType::fp32, 0);
    const double values[] = {INFINITY, -INFINITY, NAN, 0.0, -0.0, 3.4e38, 1.0 + 0x1p-8, 1e-40};
    for (int64_t i = 0; i < 8; ++i) from.set(0, i, values[i]);
    const DeviceMatrix dfrom(device, from), to(device, Matrix(1, 8, DType::bf16, 0));
    cuda::convert(device.context(), dfrom, to);
    const Matrix result = to.download();
    EXPECT_EQ(result.get(0, 0), INFINITY);
    EXPECT_EQ(result.get(0, 1), -INFINITY);
    EXPECT_TRUE(std::isnan(result.get(0, 2)));
    EXPECT_EQ(result.get(0, 3), 0.0);
    EXPECT_TRUE(std::signbit(result.get(0, 4)));
    EXPECT_EQ(result.get(0, 5), INFINITY);
    EXPECT_EQ(result.get(0, 6), 1.0);       // tie, to even
    EXPECT_EQ(result.get(0, 7), 0x1p-133);  // the smallest there is
}

TEST_F(CudaElements, ScaleRoundsTheExactProductAndMayBeInPlace) {
    Context host{{.threads = 1, .poll = {}}};
    Device device;
    for (const DType type : {DType::fp32, DType::bf16}) {
        for (const auto& [n, h, gap] : kSizes) {
            SCOPED_TRACE(testing::Message() << n << " x " << h << " " << name_of(type));
            const auto x = random_with_gap(n, h, type, gap, 1);
            const DeviceMatrix dx(device, x), y(device, Matrix(n, h, type, gap));
            cuda::scale(device.context(), dx, 0.3F, y);
            Matrix exact(n, h, DType::fp64);
            reference::scale(host, x, 0.3F, exact);
            const Matrix result = y.download();
            const double unit = kEps32 + unit_roundoff(type);
            expect_close(result, exact, [&](int64_t row, int64_t col) {
                return std::abs(exact.get(row, col)) * unit * 1.01;
            });
            cuda::scale(device.context(), dx, 0.3F, dx);
            EXPECT_TRUE(dx.download().same_bits(result));
        }
    }
}

class CudaColumnSums : public OnDeviceWithParam<DType> {};

TEST_P(CudaColumnSums, AgreeWithTheSumAndAccumulate) {
    // A workspace that holds the sums of no piece, of a few, and of all.
    for (const size_t workspace : {size_t{0}, size_t{2048}, size_t{1} << 20}) {
        Device device(workspace);
        for (const auto& [n, h, gap] :
             {Sizes{0, 5, 3}, {1, 1, 3}, {7, 300, 3}, {200, 40, 8}, {333, 9, 3}}) {
            for (const bool accumulate : {false, true}) {
                SCOPED_TRACE(testing::Message() << n << " x " << h << " " << workspace);
                const auto x = random_with_gap(n, h, GetParam(), gap, 1);
                const Matrix start =
                    accumulate ? Matrix::random(1, h, DType::fp32, 2) : Matrix(1, h, DType::fp32);
                Matrix exact(1, h, DType::fp64), scale(1, h, DType::fp64);
                for (int64_t col = 0; col < h; ++col) {
                    double sum = accumulate ? start.get(0, col) : 0.0, size = std::abs(sum);
                    for (int64_t row = 0; row < n; ++row) {
                        sum += x.get(row, col);
                        size += std::abs(x.get(row, col));
                    }
                    exact.set(0, col, sum);
                    scale.set(0, col, size);
                }
                const DeviceMatrix dx(device, x), sums(device, start);
                cuda::column_sums(device.context(), dx, sums, accumulate);
                expect_close(sums.download(), exact, sum_bound(scale, exact, n + 1, DType::fp32));
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaColumnSums, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace vocabpipe::kernels::test
