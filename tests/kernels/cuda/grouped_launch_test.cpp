// SPDX-License-Identifier: Apache-2.0
// Products of all experts in one launch: what is prepared for it, and when it applies.
// On the stand-in the launch itself is a kernel of plain loops over the same arrays.
#include "kernels/cuda/grouped_launch.hpp"

#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/grouped_arrays.hpp"
#include "kernels/cuda/grouped_gemm.hpp"
#include "kernels/cuda/operators.hpp"
#include "tests/conformance/expert_cases.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

using cuda::GroupedArrays;
using cuda::GroupedProblem;
using cuda::GroupedProduct;

class CudaGroupedLaunch : public OnDevice {
protected:
    void SetUp() override {
        OnDevice::SetUp();
        if (IsSkipped()) return;
        Device device;
        const int capability = device.context().cuda().compute_capability();
        if (!cuda::grouped_gemm_runs_on(capability)) {
            GTEST_SKIP() << "a GPU of compute capability " << capability / 10 << "."
                         << capability % 10 << "; the launch is for 9.0";
        }
    }
};

template <typename T>
std::vector<T> numbers_of(const Device& device, const T* array, int32_t count) {
    std::vector<T> result(static_cast<size_t>(count));
    device.download(array, result.data(), result.size() * sizeof(T));
    return result;
}

TEST_F(CudaGroupedLaunch, SizesAddressesAndStridesAreThoseOfEveryExpertsMatrices) {
    Device device;
    std::vector<RowRange> rows;  // more than one launch of the preparing kernel has room for
    for (int64_t e = 0; e < 300; ++e) rows.push_back({5 * e, 5 * e + e % 5});
    const auto experts = static_cast<int32_t>(std::ssize(rows));
    const DeviceBytes memory(static_cast<size_t>(GroupedArrays::bytes(experts)));
    const GroupedArrays arrays = GroupedArrays::at(memory, experts);
    auto* const base = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);
    GroupedProblem problem{.a = {.data = base, .per_row = 16, .stride = 8},
                           .b = {.data = base + 64, .per_expert = 320, .stride = 24},
                           .d = {.data = base + 128, .per_row = 48, .stride = 12},
                           .m = -1,
                           .n = 40,
                           .k = 24};
    for (const bool rows_are_terms : {false, true}) {
        problem.rows_are_terms = rows_are_terms;
        if (rows_are_terms) {
            problem.m = 56;
            problem.k = -1;
        }
        cuda::prepare_groups(device.context(), problem, rows, arrays);
        const auto sizes = numbers_of(device, arrays.sizes, experts);
        const auto a = numbers_of(device, arrays.a, experts);
        const auto b = numbers_of(device, arrays.b, experts);
        const auto d = numbers_of(device, arrays.d, experts);
        for (int32_t e = 0; e < experts; ++e) {
            SCOPED_TRACE(testing::Message() << "expert " << e);
            const auto i = static_cast<size_t>(e);
            const auto count = static_cast<int32_t>(rows[i].size());
            const bool none = count == 0;
            EXPECT_EQ(sizes[i].m, none ? 0 : rows_are_terms ? 56 : count);
            EXPECT_EQ(sizes[i].n, none ? 0 : 40);
            EXPECT_EQ(sizes[i].k, none ? 0 : rows_are_terms ? count : 24);
            EXPECT_EQ(a[i], base + 16 * rows[i].first);
            EXPECT_EQ(b[i], base + 64 + 320 * int64_t{e});
            EXPECT_EQ(d[i], base + 128 + 48 * rows[i].first);
        }
        const auto all = [&](int64_t value) {
            return std::vector<int64_t>(static_cast<size_t>(experts), value);
        };
        EXPECT_EQ(numbers_of(device, arrays.a_stride, experts), all(8));
        EXPECT_EQ(numbers_of(device, arrays.b_stride, experts), all(24));
        EXPECT_EQ(numbers_of(device, arrays.d_stride, experts), all(12));
    }
}

/// Layers of two experts. What the products are is compared for every device, in
/// tests/conformance/operators/grouped_linear_test.cpp.
struct GroupedCase {
    std::vector<int32_t> row_begin{0, 9, 20};
    int64_t in = 40, out = 24;
    int64_t first_column = 0, columns = 24;  ///< of y
    int64_t gap = 8, gap_of_dw = 4;
    DType type = DType::bf16;
};

/// How many of forward, input gradient, and weight gradient twice, are one launch each.
int64_t launches_of(const GroupedCase& c) {
    Device device;
    Context& ctx = device.context();
    ctx.cuda().group_experts(true);
    const std::vector<RowRange> rows = ranges_of(c.row_begin);
    const int64_t count = c.row_begin.back(), experts = std::ssize(rows);
    const auto random = [&](int64_t r, int64_t cols) {
        return DeviceMatrix(device, random_with_gap(r, cols, c.type, c.gap, 1));
    };
    const DeviceMatrix x = random(count, c.in), dy = random(count, c.out);
    const DeviceMatrix w = random(experts * c.out, c.in), y = random(count, c.columns);
    const DeviceMatrix dx = random(count, c.in);
    const DeviceMatrix dw(device, Matrix(experts * c.out, c.in, DType::fp32, c.gap_of_dw));
    cuda::grouped_linear_forward(ctx, x, w, rows, c.first_column, y);
    cuda::grouped_linear_backward_input(ctx, dy, w, rows, dx);
    for (const bool accumulate : {false, true}) {
        cuda::grouped_linear_backward_weight(ctx, dy, x, rows, dw, accumulate);
    }
    device.finish();
    return ctx.cuda().counters().grouped_products;
}

TEST_F(CudaGroupedLaunch, TakesRowsThatBeginAtMultiplesOf16BytesAndNothingElse) {
    EXPECT_EQ(launches_of({}), 4);
    EXPECT_EQ(launches_of({.in = 37, .out = 21, .columns = 21, .gap = 3, .gap_of_dw = 3}), 4);
    EXPECT_EQ(launches_of({.first_column = 8, .columns = 16}), 4) << "some columns of y";
    EXPECT_EQ(launches_of({.row_begin = {0, 0, 0}}), 0) << "no rows";
    EXPECT_EQ(launches_of({.type = DType::fp32}), 0) << "fp32";
    EXPECT_EQ(launches_of({.gap = 4}), 0) << "rows 88 and 56 bytes apart";
    EXPECT_EQ(launches_of({.gap_of_dw = 3}), 2) << "dw's rows";
}

TEST_F(CudaGroupedLaunch, IsNotUsedWhereTheEngineSaysSo) {
    Device device;
    Context& ctx = device.context();
    const DeviceMatrix x(device, random_with_gap(4, 8, DType::bf16, 0, 1));
    const DeviceMatrix w(device, random_with_gap(16, 8, DType::bf16, 0, 2));
    const DeviceMatrix y(device, Matrix(4, 8, DType::bf16, 0));
    const std::vector<RowRange> rows{{0, 3}, {3, 4}};
    for (const bool may : {false, true}) {
        ctx.cuda().group_experts(may);
        cuda::grouped_linear_forward(ctx, x, w, rows, 0, y);
        device.finish();
        EXPECT_EQ(ctx.cuda().counters().grouped_products, may ? 1 : 0);
    }
}

TEST_F(CudaGroupedLaunch, ARowHasTheSameBitsBesideOtherRowsAndWithFewerMultiprocessors) {
    const int64_t in = 200, out = 160;
    const std::vector<int32_t> begin{0, 3, 3, 140, 300};
    Device device;
    Context& ctx = device.context();
    ctx.cuda().group_experts(true);
    const DeviceMatrix x(device, random_with_gap(300, in, DType::bf16, 0, 1));
    const DeviceMatrix dy(device, random_with_gap(300, out, DType::bf16, 0, 2));
    const DeviceMatrix w(device, random_with_gap(4 * out, in, DType::bf16, 0, 3));
    const auto made = [&](const std::vector<std::vector<RowRange>>& parts, int64_t panels) {
        const DeviceMatrix y(device, Matrix(300, out, DType::bf16, 0));
        const DeviceMatrix dx(device, Matrix(300, in, DType::bf16, 0));
        for (const auto& rows : parts) {
            for (int64_t panel = 0; panel < panels; ++panel) {
                const int64_t columns = out / panels;
                cuda::grouped_linear_forward(ctx, x, w, rows, panel * columns,
                                             y.view().column_range(panel * columns, columns));
            }
            cuda::grouped_linear_backward_input(ctx, dy, w, rows, dx);
        }
        return std::pair(y.download(), dx.download());
    };
    const auto whole = made({ranges_of(begin)}, 1);
    const auto pieces =
        made({{{0, 1}, {3, 3}, {3, 77}, {140, 141}}, {{1, 3}, {3, 3}, {77, 140}, {141, 300}}}, 4);
    EXPECT_TRUE(pieces.first.same_bits(whole.first));
    EXPECT_TRUE(pieces.second.same_bits(whole.second));
    ctx.cuda().leave_multiprocessors(5);
    const auto fewer = made({ranges_of(begin)}, 1);
    EXPECT_TRUE(fewer.first.same_bits(whole.first));
    EXPECT_TRUE(fewer.second.same_bits(whole.second));
    EXPECT_EQ(ctx.cuda().counters().grouped_products, 2 + 2 * (4 + 1) + 2) << "all by launches";
}

/// Needs no GPU.
TEST(CudaGroupedWorkspace, OfALaneIsEnoughForTheLargestLayers) {
    for (const auto product :
         {GroupedProduct::forward, GroupedProduct::input, GroupedProduct::weight}) {
        const int64_t bytes = cuda::grouped_gemm_workspace_bytes(product, 132);
        EXPECT_GT(bytes, 0);
        EXPECT_LE(bytes + GroupedArrays::bytes(512), cuda::kCombineWorkspaceBytes);
        EXPECT_LE(cuda::grouped_gemm_workspace_bytes(product, 66), bytes);
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
