// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include "kernels/reference/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"

namespace vocabpipe::kernels::test {
namespace {

class FoldPartials : public OnDevice {};

TEST_F(FoldPartials, HasTheBitsOfTheReference) {
    Device device;
    Context host({.poll = {}});
    constexpr int64_t kRows = 7;
    for (const DType type : {DType::fp32, DType::bf16}) {
        for (const int64_t cols : {37, 64}) {  // 64 with a gap of 8: whole vectors
            const int64_t gap = cols == 64 ? 8 : 3;
            const auto random = [&](int64_t rows, unsigned seed) {
                const Matrix values = Matrix::random(rows, cols, type, seed);
                Matrix result(rows, cols, type, gap);
                for (int64_t row = 0; row < rows; ++row) {
                    for (int64_t col = 0; col < cols; ++col) {
                        result.set(row, col, values.get(row, col));
                    }
                }
                return result;
            };
            for (const int64_t count : {1, 2, 5}) {
                for (const int what : {0, 1, 2, 3}) {
                    const Matrix partials = random(count * kRows, 1), bias = random(1, 2);
                    const Matrix residual = random(kRows, 3);
                    const DeviceMatrix on_device(device, partials), device_bias(device, bias);
                    const DeviceMatrix out(device, residual);  // which may be the result
                    const bool with_bias = (what & 1) != 0, with_residual = (what & 2) != 0;
                    const DeviceMatrix apart(device, Matrix(kRows, cols, type, gap));
                    const DeviceMatrix& to = with_residual ? out : apart;
                    Matrix expected(kRows, cols, type, gap);
                    cuda::fold_partials(device.context(), on_device, count,
                                        with_bias ? ConstTensor(device_bias) : ConstTensor(),
                                        with_residual ? ConstTensor(out) : ConstTensor(), to);
                    reference::fold_partials(
                        host, partials, count, with_bias ? bias.view() : ConstTensor(),
                        with_residual ? residual.view() : ConstTensor(), expected);
                    const Matrix actual = to.download();
                    EXPECT_TRUE(actual.same_bits(expected));
                    EXPECT_TRUE(actual.gaps_are_intact());
                }
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
