// SPDX-License-Identifier: Apache-2.0
// Which of cuBLASLt's algorithms a product runs with. The stand-in lists some that split the sum
// and round its parts, and some that it refuses to run, in an order that varies with the problem.
#include "kernels/cuda/product_choices.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/engine_state.hpp"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/product_plan.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/sums.hpp"
#include "tests/support/cuda_stand_in/control.hpp"
#include "tests/support/cuda_stand_in/multiprocessors.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

using cuda_stand_in::counters;

/// The stand-in as it is by default, whatever a test made of it.
class ProductPlans : public testing::Test {
protected:
    void TearDown() override {
        cuda_stand_in::refuse_algorithms(0);
        cuda_stand_in::set_multiprocessors(0);
        cuda_stand_in::slow_algorithms(0, {});
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

/// The list for fewer rows begins with another algorithm.
TEST_F(ProductPlans, SomeRowsOfAProductHaveTheBitsOfAllOfThem) {
    Device device;
    int differ = 0;
    for (int64_t k = 64; k < 64 + 24 * 8; k += 8) {
        SCOPED_TRACE(k);
        const Operands operands(80, 24, k, DType::bf16);
        const Matrix whole = operands.product(device, DType::bf16);
        const DeviceMatrix a(device, operands.a), b(device, operands.b);
        const auto by_pieces = [&] {
            const DeviceMatrix c(device, Matrix(80, 24, DType::bf16));
            for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 32}, {32, 48}}) {
                cuda::gemm(device.context(), static_cast<ConstTensor>(a).row_range(first, rows),
                           false, b, true, c.view().row_range(first, rows), false);
            }
            return c.download();
        };
        device.context().take_part_of(80);
        EXPECT_TRUE(by_pieces().same_bits(whole));
        device.context().take_part_of(0);
        differ += by_pieces().same_bits(whole) ? 0 : 1;
    }
    EXPECT_GT(differ, 0) << "nothing would be shown";
}

/// As rows of experts come: however many an expert has, fewer or more than 140, the choice is that
/// of 140, or of the multiple of 128 above it.
TEST_F(ProductPlans, GroupedProductsHaveTheSameBitsInAnyPieces) {
    Device device;
    int differ = 0;
    for (int64_t k = 64; k < 64 + 24 * 8; k += 8) {
        SCOPED_TRACE(k);
        const Operands operands(280, 48, k, DType::bf16);  // two experts
        const DeviceMatrix a(device, operands.a), b(device, operands.b);
        const auto product = [&](const std::vector<std::vector<RowRange>>& pieces) {
            const DeviceMatrix c(device, Matrix(280, 24, DType::bf16));
            for (const std::vector<RowRange>& rows : pieces) {
                cuda::grouped_linear_forward(device.context(), a, b, rows, 0, c);
            }
            return c.download();
        };
        const auto whole = [&] { return product({{{0, 200}, {200, 280}}}); };
        const auto by_pieces = [&] {
            return product({{{0, 80}, {200, 200}}, {{80, 200}, {200, 280}}});
        };
        device.context().take_part_of(140);
        cuda_stand_in::reset_counters();
        EXPECT_TRUE(by_pieces().same_bits(whole()));
        EXPECT_EQ(counters().heuristics, 1U) << "for five numbers of rows";
        device.context().take_part_of(0);
        differ += by_pieces().same_bits(whole()) ? 0 : 1;
    }
    EXPECT_GT(differ, 0) << "nothing would be shown";
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

/// A product of every kind, in bf16.
void run_products(Device& device) {
    const int64_t m = 16, n = 24, k = 40;
    const DeviceMatrix a(device, random_with_gap(m, k, DType::bf16, 0, 1));
    const DeviceMatrix b(device, random_with_gap(n, k, DType::bf16, 0, 2));
    const DeviceMatrix bias(device, random_with_gap(1, n, DType::bf16, 0, 3));
    const DeviceMatrix narrow(device, Matrix(m, n, DType::bf16, 8));
    const DeviceMatrix aux(device, Matrix(m, n, DType::bf16));
    const DeviceMatrix wide(device, random_with_gap(n, k, DType::fp32, 0, 4));
    const DeviceMatrix batches(device, Matrix(3 * m, n, DType::bf16));
    Context& ctx = device.context();
    cuda::linear_gelu_forward(ctx, a, b, bias, aux, narrow);
    cuda::linear_add_forward(ctx, a, b, bias, aux, aux, narrow);
    cuda::linear_backward_weight(ctx, aux, a, wide, {}, true);
    cuda::multiply(ctx, {.a = a.view().column_range(1, 16),  // not aligned
                         .b = b.view().column_range(0, 16),
                         .transpose_b = true,
                         .c = batches.view().row_range(0, m),
                         .batch = 3,
                         .a_step = 8,
                         .b_step = 8,
                         .c_step = m * n});
    device.finish();
}

TEST_F(ProductPlans, AreTimedOnceAndTheFastestIsChosen) {
    // Half a list, so that whether its first is refused changes nothing.
    const int slow = cuda::ProductPlan::kCandidates / 2;
    cuda_stand_in::slow_algorithms(slow, std::chrono::milliseconds(3));
    Device device;
    run_products(device);
    const auto shapes = cuda::product_shapes(device.context());
    ASSERT_EQ(shapes.size(), 4U);
    const auto choices = cuda::time_products(device.context(), shapes, "a GPU");
    EXPECT_EQ(choices.size(), shapes.size());
    cuda::Engine& engine = device.context().cuda();
    for (const cuda::ProductShape& shape : shapes) {
        SCOPED_TRACE(describe(shape));
        const cuda::ProductPlan plan(engine.state().blas, shape);
        const auto* chosen = choices.find(shape);
        ASSERT_NE(chosen, nullptr);
        const auto is_chosen = [&](const cublasLtMatmulAlgo_t& one) {
            return std::ranges::equal(one.data, chosen->data);
        };
        const auto at = std::ranges::find_if(plan.candidates(), is_chosen);
        EXPECT_GE(at - plan.candidates().begin(), slow) << "a slow one was chosen";
        // What was read back goes first.
        const auto read = cuda::ProductChoices::parse(choices.text(), "a GPU");
        const cuda::ProductPlan chosen_plan(engine.state().blas, shape, read.find(shape));
        EXPECT_TRUE(is_chosen(chosen_plan.candidates().front()));
    }
}

TEST_F(ProductPlans, TheFirstThatIsNotRefusedStaysUnlessAnotherIsClearlyFaster) {
    constexpr float refused = std::numeric_limits<float>::infinity();
    const auto choice = [](const std::vector<float>& times) { return cuda::worth_choosing(times); };
    EXPECT_EQ(choice({10, 9.9F, 9.81F}), 0U);
    EXPECT_EQ(choice({10, 9.9F, 9.79F}), 2U);
    EXPECT_EQ(choice({refused, 10, refused, 9.9F}), 1U);
    EXPECT_EQ(choice({refused, 10, 5, 4}), 3U);
}

TEST_F(ProductPlans, ChosenAlgorithmsRunInOtherEngines) {
    const Operands operands(9, 8, 64, DType::bf16);
    const auto choices_of = [&](int slow) {
        cuda_stand_in::slow_algorithms(slow, std::chrono::milliseconds(3));
        Device device;
        (void)operands.product(device, DType::fp32);
        return cuda::time_products(device.context(), cuda::product_shapes(device.context()), "");
    };
    int different = 0;
    Device plain;
    const Matrix first = operands.product(plain, DType::fp32);
    for (const int slow : {2, 4, 6}) {
        std::vector<Matrix> results;
        const auto choices = choices_of(slow);
        for (int i = 0; i < 2; ++i) {
            Device device;
            cuda::use_choices(device.context().cuda(), choices);
            results.push_back(operands.product(device, DType::fp32));
            operands.expect_right(results.back());
        }
        EXPECT_TRUE(results[0].same_bits(results[1]));
        different += results[0].same_bits(first) ? 0 : 1;
    }
    EXPECT_GT(different, 0) << "the choices change nothing";
}

TEST_F(ProductPlans, ChoicesOfAnotherGpuOrLibraryAndDamagedOnesAreRefused) {
    Device device;
    run_products(device);
    const auto shapes = cuda::product_shapes(device.context());
    const std::string text = cuda::time_products(device.context(), shapes, "a GPU").text();
    const auto parse = [](const std::string& what) {
        return cuda::ProductChoices::parse(what, "a GPU");
    };
    EXPECT_EQ(parse(text).text(), text);
    EXPECT_THROW((void)cuda::ProductChoices::parse(text, "another"), InputFileError);
    EXPECT_THROW((void)parse(""), InputFileError);
    EXPECT_THROW((void)parse(text.substr(0, text.size() - 20)), InputFileError);
    std::string other = text;
    other.replace(other.find("cuBLASLt "), 10, "cuBLASLt 9");
    EXPECT_THROW((void)parse(other), InputFileError);
    other = text;
    other.replace(other.find(':'), 1, " 7:");
    EXPECT_THROW((void)parse(other), InputFileError);
    other.replace(other.find(" 7:"), 3, " ");
    EXPECT_THROW((void)parse(other), InputFileError);
}

TEST_F(ProductPlans, ShapesWhoseMatricesDoNotFitAreNotTimed) {
    Device device;
    run_products(device);
    auto shapes = cuda::product_shapes(device.context());
    for (cuda::ProductShape& shape : shapes) shape.a_stride = int64_t{1} << 40;
    EXPECT_EQ(cuda::time_products(device.context(), shapes, "").size(), 0U);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
