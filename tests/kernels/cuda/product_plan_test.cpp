// SPDX-License-Identifier: Apache-2.0
// Which of cuBLASLt's algorithms a product runs with. The stand-in lists some that split the sum
// and round its parts, and some that it refuses to run, in an order that varies with the problem.
#include "kernels/cuda/product_plan.hpp"

#include <vector>

#include "kernels/cuda/engine_state.hpp"
#include "kernels/cuda/linear.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/cuda/sums.hpp"
#include "tests/support/cuda_stand_in/control.hpp"
#include "tests/support/cuda_stand_in/multiprocessors.hpp"

namespace vocabpipe::kernels::test {
namespace {

using cuda_stand_in::counters;

/// The stand-in as it is by default, whatever a test made of it.
class ProductPlans : public testing::Test {
protected:
    void TearDown() override {
        cuda_stand_in::refuse_algorithms(0);
        cuda_stand_in::set_multiprocessors(0);
    }
};

/// a (m, k) times b (n, k) transposed, with the exact product and that of magnitudes.
struct Operands {
    Matrix a, b, exact, magnitude;

    Operands(int64_t m, int64_t n, int64_t k, DType type)
        : a(random_with_gap(m, k, type, 0, 1)),
          b(random_with_gap(n, k, type, 0, 2)),
          exact(m, n, DType::fp64),
          magnitude(m, n, DType::fp64) {
        for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
                double sum = 0, size = 0;
                for (int64_t l = 0; l < k; ++l) {
                    sum += a.get(i, l) * b.get(j, l);
                    size += std::abs(a.get(i, l) * b.get(j, l));
                }
                exact.set(i, j, sum);
                magnitude.set(i, j, size);
            }
        }
    }
    [[nodiscard]] Matrix product(Device& device, DType type) const {
        const DeviceMatrix da(device, a), db(device, b);
        const DeviceMatrix c(device, Matrix(a.rows(), b.rows(), type));
        cuda::gemm(device.context(), da, false, db, true, c, false);
        return c.download();
    }
    void expect_right(const Matrix& c) const {
        expect_close(c, exact, sum_bound(magnitude, exact, a.cols(), c.type()));
    }
};

TEST_F(ProductPlans, PartsOfASumAreNotRoundedAndMeetInOneOrder) {
    Device device;
    for (const DType in : {DType::fp32, DType::bf16}) {
        for (int64_t k = 64; k < 64 + 24 * 8; k += 8) {  // the first of the list varies
            SCOPED_TRACE(testing::Message() << name_of(in) << " k " << k);
            const Operands operands(9, 8, k, in);
            const Matrix first = operands.product(device, in);
            operands.expect_right(first);
            for (int again = 0; again < 3; ++again) {
                EXPECT_TRUE(operands.product(device, in).same_bits(first));
            }
        }
    }
}

TEST_F(ProductPlans, WhatIsListedButRefusedIsFollowedByTheNext) {
    const Operands operands(16, 24, 40, DType::bf16);
    for (const int refused : {1, 3, cuda::ProductPlan::kCandidates - 1}) {
        SCOPED_TRACE(refused);
        cuda_stand_in::refuse_algorithms(refused);
        Device device;
        cuda_stand_in::reset_counters();
        operands.expect_right(operands.product(device, DType::bf16));
        EXPECT_EQ(counters().refused_matmuls, static_cast<uint64_t>(refused));
        EXPECT_EQ(counters().matmuls, 1U);
        operands.expect_right(operands.product(device, DType::bf16));
        EXPECT_EQ(counters().refused_matmuls, static_cast<uint64_t>(refused)) << "asked again";
        EXPECT_EQ(counters().matmuls, 2U);
        EXPECT_EQ(counters().kernel_launches, 0U);
    }
}

TEST_F(ProductPlans, WhenAllAreRefusedKernelsOfOurOwnCompute) {
    cuda_stand_in::refuse_algorithms(cuda::ProductPlan::kCandidates);
    Device device;
    cuda_stand_in::reset_counters();
    const Operands operands(16, 24, 40, DType::bf16);
    operands.expect_right(operands.product(device, DType::bf16));
    EXPECT_EQ(counters().matmuls, 0U);
    EXPECT_EQ(counters().kernel_launches, 1U);
    // The product, and GELU apart.
    const DeviceMatrix x(device, operands.a), w(device, operands.b);
    const DeviceMatrix before(device, Matrix(16, 24, DType::bf16));
    const DeviceMatrix y(device, Matrix(16, 24, DType::bf16));
    cuda::linear_gelu_forward(device.context(), x, w, {}, before, y);
    operands.expect_right(before.download());
    EXPECT_EQ(counters().matmuls, 0U);
    EXPECT_EQ(counters().kernel_launches, 3U);
}

TEST_F(ProductPlans, ACallThatIsInvalidForEveryAlgorithmIsAnError) {
    Device device;
    const DeviceMatrix a(device, Matrix(8, 8, DType::bf16)), b(device, Matrix(8, 8, DType::bf16));
    cuda::Engine& engine = device.context().cuda();
    const cuda::Product product{.a = a, .b = b, .c = a};  // which cuBLASLt does not take
    cuda::ProductPlan plan(engine.state().blas, cuda::ProductShape::of(product, engine));
    EXPECT_THROW(
        (void)plan.run(engine.state().blas, product, {engine.stream(), engine.workspace()}),
        DeviceError);
}

TEST_F(ProductPlans, BitsDoNotDependOnWhereTheBiasLies) {
    const int64_t n = 16;
    for (int64_t k = 64; k < 64 + 12 * 8; k += 8) {
        const Operands operands(9, n, k, DType::bf16);
        const Matrix row = random_with_gap(1, n, DType::bf16, 0, 3);
        std::vector<Matrix> results;
        for (const int64_t offset : {0, 8}) {  // of 256-byte and of 16-byte alignment
            Matrix wide(1, 2 * n, DType::bf16);
            for (int64_t j = 0; j < n; ++j) wide.set(0, offset + j, row.get(0, j));
            Device device;
            const DeviceMatrix a(device, operands.a), b(device, operands.b), bias(device, wide);
            const DeviceMatrix c(device, Matrix(9, n, DType::bf16));
            cuda::gemm(device.context(), a, false, b, true, c, false,
                       bias.view().column_range(offset, n));
            results.push_back(c.download());
        }
        EXPECT_TRUE(results[0].same_bits(results[1])) << k;
    }
}

TEST_F(ProductPlans, MultiprocessorsAreLeftToKernelsThatHoldThem) {
    cuda_stand_in::set_multiprocessors(32);
    const cuda_stand_in::HeldMultiprocessors held(0, 12);
    const Operands operands(16, 24, 40, DType::bf16);
    for (const int left : {0, 11, 12}) {
        Device device;
        device.context().cuda().leave_multiprocessors(left);
        cuda_stand_in::reset_counters();
        operands.expect_right(operands.product(device, DType::bf16));
        EXPECT_EQ(counters().crowded_matmuls, left < 12 ? 1U : 0U) << left;
    }
}

TEST_F(ProductPlans, HalfOfTheMultiprocessorsIsNeverGivenAway) {
    cuda_stand_in::set_multiprocessors(5);
    cuda::Engine engine(0);
    EXPECT_EQ(engine.product_multiprocessors(), 0);
    engine.leave_multiprocessors(1);
    EXPECT_EQ(engine.product_multiprocessors(), 4);
    engine.leave_multiprocessors(16);
    EXPECT_EQ(engine.product_multiprocessors(), 3);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
