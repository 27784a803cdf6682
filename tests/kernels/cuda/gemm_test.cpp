// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gemm.hpp"

#include <vector>

#include "kernels/cuda/tiled_gemm.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct ProductCase {
    int64_t m, n, k;
    int64_t gap;  ///< 3: odd strides; 8: whole 16-byte vectors in both types
};
const ProductCase kProductCases[] = {{1, 1, 1, 3},
                                     {1, 5, 33, 3},
                                     {7, 1, 4, 3},
                                     {3, 17, 1, 3},
                                     {33, 65, 20, 3},
                                     {65, 33, 70, 8},
                                     {16, 24, 40, 8},
                                     {64, 8, 16, 0},
                                     // cut: of k, of n, of m, of all
                                     {16, 24, 261, 3},
                                     {16, 261, 24, 3},
                                     {261, 16, 24, 3},
                                     {257, 259, 263, 1}};

/// op(a) op(b) + c0 + bias in fp64 and the same of magnitudes.
struct Exact {
    Matrix value, magnitude;

    Exact(const Matrix& a, bool transpose_a, const Matrix& b, bool transpose_b, const Matrix* start,
          const Matrix* bias, int64_t m, int64_t n)
        : value(m, n, DType::fp64), magnitude(m, n, DType::fp64) {
        const int64_t k = transpose_a ? a.rows() : a.cols();
        for (int64_t row = 0; row < m; ++row) {
            for (int64_t col = 0; col < n; ++col) {
                double sum = 0, size = 0;
                const auto add = [&](double term) {
                    sum += term;
                    size += std::abs(term);
                };
                if (start != nullptr) add(start->get(row, col));
                if (bias != nullptr) add(bias->get(0, col));
                for (int64_t i = 0; i < k; ++i) {
                    add((transpose_a ? a.get(i, row) : a.get(row, i)) *
                        (transpose_b ? b.get(col, i) : b.get(i, col)));
                }
                value.set(row, col, sum);
                magnitude.set(row, col, size);
            }
        }
    }
};

using Types = std::tuple<DType, DType>;

class CudaGemm : public OnDeviceWithParam<Types> {
protected:
    DType in_type() const { return std::get<0>(GetParam()); }
    DType out_type() const { return std::get<1>(GetParam()); }
};

TEST_P(CudaGemm, AgreesWithTheSumForEveryTransposition) {
    Device device;
    for (const auto& [m, n, k, gap] : kProductCases) {
        for (const int transposed : {0, 1, 2, 3}) {
            SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << ", " << transposed);
            const bool transpose_a = (transposed & 1) != 0, transpose_b = (transposed & 2) != 0;
            const auto a =
                random_with_gap(transpose_a ? k : m, transpose_a ? m : k, in_type(), gap, 1);
            const auto b =
                random_with_gap(transpose_b ? n : k, transpose_b ? k : n, in_type(), gap, 2);
            const auto bias = random_with_gap(1, n, in_type(), gap, 3);
            const bool with_bias = transposed % 2 == 0;
            const bool accumulate = transposed >= 2 && out_type() == DType::fp32;
            const Matrix start = accumulate ? random_with_gap(m, n, out_type(), gap, 4)
                                            : Matrix(m, n, out_type(), gap);
            const Exact exact(a, transpose_a, b, transpose_b, accumulate ? &start : nullptr,
                              with_bias ? &bias : nullptr, m, n);
            const DeviceMatrix da(device, a), db(device, b), dbias(device, bias), c(device, start);
            cuda::gemm(device.context(), da, transpose_a, db, transpose_b, c, accumulate,
                       with_bias ? ConstTensor(dbias) : ConstTensor{});
            expect_close(c.download(), exact.value,
                         with_bias ? biased_bound(exact.magnitude, exact.value, k + 2, c.view())
                                   : sum_bound(exact.magnitude, exact.value, k + 2, out_type()));
        }
    }
}

TEST_P(CudaGemm, TakesOperandsThatStartAtAnyElement) {
    Device device;
    const int64_t m = 9, n = 10, k = 11;
    const auto a = random_with_gap(m, k + 1, in_type(), 4, 1);
    const auto b = random_with_gap(k, n + 1, in_type(), 5, 2);
    Matrix cut_a(m, k, in_type()), cut_b(k, n, in_type());
    for (int64_t i = 0; i < m * k; ++i) cut_a.set(i / k, i % k, a.get(i / k, i % k + 1));
    for (int64_t i = 0; i < k * n; ++i) cut_b.set(i / n, i % n, b.get(i / n, i % n + 1));
    const Exact exact(cut_a, false, cut_b, false, nullptr, nullptr, m, n);
    const DeviceMatrix da(device, a), db(device, b), c(device, Matrix(m, n, out_type()));
    cuda::gemm(device.context(), da.view().column_range(1, k), false, db.view().column_range(1, n),
               false, c, false);
    expect_close(c.download(), exact.value, sum_bound(exact.magnitude, exact.value, k, out_type()));
}

TEST_P(CudaGemm, EqualCallsGiveEqualBitsWhateverTheWorkspaceHolds) {
    const int64_t m = 40, n = 24, k = 64;
    const auto a = random_with_gap(m, k, in_type(), 0, 1);
    const auto b = random_with_gap(n, k, in_type(), 0, 2);
    std::vector<Matrix> results;
    Device device;
    for (int call = 0; call < 2; ++call) {
        const DeviceMatrix da(device, a), db(device, b), c(device, Matrix(m, n, out_type()));
        cuda::gemm(device.context(), da, false, db, true, c, false);
        results.push_back(c.download());
    }
    EXPECT_TRUE(results[0].same_bits(results[1]));
}

// What cuBLASLt refuses lands here; on a machine where it refuses nothing only this test does.
TEST_P(CudaGemm, TiledKernelDoesWhatTheLibraryDoes) {
    Device device;
    for (const auto& [m, n, k, gap] : kProductCases) {
        for (const int transposed : {0, 1, 2, 3}) {
            SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k << ", " << transposed);
            const bool transpose_a = (transposed & 1) != 0, transpose_b = (transposed & 2) != 0;
            const auto a =
                random_with_gap(transpose_a ? k : m, transpose_a ? m : k, in_type(), gap, 1);
            const auto b =
                random_with_gap(transpose_b ? n : k, transpose_b ? k : n, in_type(), gap, 2);
            const auto bias = random_with_gap(1, n, in_type(), gap, 3);
            const auto addend = random_with_gap(m, n, out_type(), gap, 4);
            const Exact exact(a, transpose_a, b, transpose_b, &addend, &bias, m, n);
            const DeviceMatrix da(device, a), db(device, b), dbias(device, bias);
            const DeviceMatrix dadd(device, addend), c(device, Matrix(m, n, out_type(), gap));
            cuda::tiled_gemm(device.context(), {.a = da,
                                                .transpose_a = transpose_a,
                                                .b = db,
                                                .transpose_b = transpose_b,
                                                .c = c,
                                                .addend = dadd,
                                                .bias = dbias});
            expect_close(c.download(), exact.value,
                         sum_bound(exact.magnitude, exact.value, k + 2, out_type()));
        }
    }
}

/// Heads side by side, as attention has them: product i of columns [i d, i d + d).
TEST_P(CudaGemm, BatchedProductsAreThoseOfTheirParts) {
    const int64_t m = 12, k = 8, n = 9, batch = 3;
    Device device;
    const auto a = random_with_gap(m, batch * k, in_type(), 8, 1);
    const auto b = random_with_gap(n, batch * k, in_type(), 8, 2);
    const auto addend = random_with_gap(batch * m, n, out_type(), 7, 3);
    const DeviceMatrix da(device, a), db(device, b);
    const auto part = [&](const Matrix& whole, int64_t row, int64_t col, int64_t rows,
                          int64_t cols) {
        Matrix result(rows, cols, whole.type());
        for (int64_t r = 0; r < rows; ++r) {
            for (int64_t c = 0; c < cols; ++c) result.set(r, c, whole.get(row + r, col + c));
        }
        return result;
    };
    for (const bool tiled : {false, true}) {
        const DeviceMatrix c(device, addend);
        const Tensor first = c.view().row_range(0, m);
        const cuda::Product product{.a = da.view().column_range(0, k),
                                    .b = db.view().column_range(0, k),
                                    .transpose_b = true,
                                    .c = first,
                                    .addend = first,
                                    .batch = batch,
                                    .a_step = k,
                                    .b_step = k,
                                    .c_step = m * first.stride};
        tiled ? cuda::tiled_gemm(device.context(), product)
              : cuda::multiply(device.context(), product);
        const Matrix result = c.download();
        EXPECT_TRUE(result.gaps_are_intact());
        for (int64_t i = 0; i < batch; ++i) {
            SCOPED_TRACE(testing::Message() << "product " << i << ", tiled " << tiled);
            const Matrix start = part(addend, i * m, 0, m, n);
            const Exact exact(part(a, 0, i * k, m, k), false, part(b, 0, i * k, n, k), true, &start,
                              nullptr, m, n);
            expect_close(part(result, i * m, 0, m, n), exact.value,
                         sum_bound(exact.magnitude, exact.value, k + 1, out_type()));
        }
    }
}

std::string name_of_product(const testing::TestParamInfo<Types>& info) {
    return std::string(name_of(std::get<0>(info.param))) + "_to_" +
           name_of(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Types, CudaGemm,
                         testing::Combine(testing::Values(DType::fp32, DType::bf16),
                                          testing::Values(DType::fp32, DType::bf16)),
                         name_of_product);

class CudaGemmCall : public OnDevice {};

TEST_F(CudaGemmCall, RefusesNumbersOf64Bits) {
    Device device;
    const DeviceMatrix a(device, Matrix(2, 3, DType::fp32)), b(device, Matrix(3, 4, DType::fp32));
    const DeviceMatrix wide(device, Matrix(2, 4, DType::fp64));
    EXPECT_THROW(cuda::gemm(device.context(), a, false, b, false, wide, false), UsageError);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
