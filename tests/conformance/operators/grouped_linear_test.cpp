// SPDX-License-Identifier: Apache-2.0
// Linear layers of experts. That a row's bits do not depend on the rows beside it is in the tests
// of each device, which need different things for it.
#include <vector>

#include "tests/conformance/expert_cases.hpp"
#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct GroupedSizes {
    int64_t in, out;
    int64_t gap;  ///< 3 with 37 and 21, and 8: rows begin at multiples of 16 bytes, as some
                  ///< launches want them
};
const GroupedSizes kGroupedSizes[] = {{17, 9, 3},  {40, 33, 3}, {1, 1, 3},  {64, 128, 3},
                                      {37, 21, 3}, {40, 24, 8}, {40, 24, 4}};

/// Rows before those of the first expert, and behind those of the last.
constexpr int64_t kRowsOfNobody = 2;

std::vector<RowRange> rows_behind_some(const ExpertRows& of) {
    std::vector<RowRange> rows = of.rows();
    for (RowRange& range : rows) {
        range.first += kRowsOfNobody;
        range.end += kRowsOfNobody;
    }
    return rows;
}

/// That of rows of experts; rows of nobody stay as they are.
std::function<double(int64_t, int64_t)> bound_in_rows(
    const std::vector<RowRange>& rows, const std::function<double(int64_t, int64_t)>& inside) {
    return [&rows, inside](int64_t row, int64_t col) {
        const bool of_nobody = row < rows.front().first || row >= rows.back().end;
        return of_nobody ? 0.0 : inside(row, col);
    };
}

class GroupedLinear : public OperatorTest<DType, DType> {
protected:
    [[nodiscard]] DType in_type() const { return parameter<1>(); }
    [[nodiscard]] DType out_type() const { return parameter<2>(); }

    /// dw and its exact value; the gradient of an expert without rows is 0, or what it was.
    void expect_weight_gradient(const Matrix& dy, const Matrix& x,
                                const std::vector<RowRange>& rows, int64_t gap) const {
        const int64_t out = dy.cols(), in = x.cols(), experts = std::ssize(rows);
        for (const bool accumulate : {false, true}) {
            const Matrix before = start_of_sum(experts * out, in, accumulate, 6, gap);
            auto exact = before.as(DType::fp64), scale = before.magnitude();
            reference::grouped_linear_backward_weight(host, dy, x, rows, exact, accumulate);
            reference::grouped_linear_backward_weight(host, dy.magnitude(), x.magnitude(), rows,
                                                      scale, accumulate);
            const Uploaded dw = up(before);
            ops().grouped_linear_backward_weight(ctx(), up(dy), up(x), rows, dw, accumulate);
            expect_close(dw.download(), exact, [&](int64_t row, int64_t col) {
                const int64_t terms = rows[static_cast<size_t>(row / out)].size();
                return terms == 0 ? 0.0 : sum_bound(scale, exact, terms + 1, DType::fp32)(row, col);
            });
        }
    }
};

TEST_P(GroupedLinear, AgreesWithTheReferenceInAllDirections) {
    for (const ExpertRows& c : expert_rows()) {
        for (const auto& [in, out, gap] : kGroupedSizes) {
            SCOPED_TRACE(testing::Message()
                         << c.name << ": " << in << " x " << out << " + " << gap);
            const auto rows = rows_behind_some(c);
            const int64_t count = rows.back().end + kRowsOfNobody, experts = std::ssize(rows);
            const Matrix x = random_with_gap(count, in, in_type(), gap, 1);
            const Matrix dy = random_with_gap(count, out, in_type(), gap, 2);
            const Matrix w = random_with_gap(experts * out, in, in_type(), gap, 3);
            const Matrix before_y = random_with_gap(count, out, out_type(), gap, 4);
            const Matrix before_dx = random_with_gap(count, in, out_type(), gap, 5);
            auto exact_y = before_y.as(DType::fp64), scale_y = before_y.magnitude();
            auto exact_dx = before_dx.as(DType::fp64), scale_dx = before_dx.magnitude();
            reference::grouped_linear_forward(host, x, w, rows, 0, exact_y);
            reference::grouped_linear_forward(host, x.magnitude(), w.magnitude(), rows, 0, scale_y);
            reference::grouped_linear_backward_input(host, dy, w, rows, exact_dx);
            reference::grouped_linear_backward_input(host, dy.magnitude(), w.magnitude(), rows,
                                                     scale_dx);
            const Uploaded weights = up(w), y = up(before_y), dx = up(before_dx);
            ops().grouped_linear_forward(ctx(), up(x), weights, rows, 0, y);
            ops().grouped_linear_backward_input(ctx(), up(dy), weights, rows, dx);
            expect_close(y.download(), exact_y,
                         bound_in_rows(rows, sum_bound(scale_y, exact_y, in, out_type())));
            expect_close(dx.download(), exact_dx,
                         bound_in_rows(rows, sum_bound(scale_dx, exact_dx, out, out_type())));
            expect_weight_gradient(dy, x, rows, gap);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, GroupedLinear,
                         testing::Combine(testing::ValuesIn(product_devices()), kTypes, kTypes),
                         kNames);

using GroupedLinearColumns = GroupedLinear;

/// From 8 on, of y and of w.
TEST_P(GroupedLinearColumns, AreThoseOfTheWholeProduct) {
    const int64_t in = 40, out = 24, first = 8, columns = 16;
    const ExpertRows c{"some", {0, 3, 3, 40}};
    for (const int64_t gap : {3, 8}) {
        const Matrix x = random_with_gap(40, in, in_type(), gap, 1);
        const Matrix dy = random_with_gap(40, out, in_type(), gap, 2);
        const Matrix w = random_with_gap(3 * out, in, in_type(), gap, 3);
        Matrix exact_y(40, out, DType::fp64), scale_y(40, out, DType::fp64);
        Matrix exact_dx(40, in, DType::fp64), scale_dx(40, in, DType::fp64);
        reference::grouped_linear_forward(host, x, w, c.rows(), 0, exact_y);
        reference::grouped_linear_forward(host, x.magnitude(), w.magnitude(), c.rows(), 0, scale_y);
        reference::grouped_linear_backward_input(host, dy, w, c.rows(), exact_dx);
        reference::grouped_linear_backward_input(host, dy.magnitude(), w.magnitude(), c.rows(),
                                                 scale_dx);
        const auto part_of = [&](const Matrix& whole) {
            Matrix part(40, columns, whole.type());
            for (int64_t row = 0; row < 40; ++row) {
                for (int64_t col = 0; col < columns; ++col) {
                    part.set(row, col, whole.get(row, first + col));
                }
            }
            return part;
        };
        const Uploaded weights = up(w), y = poison(40, columns, out_type(), gap);
        const Uploaded dx = poison(40, columns, out_type(), gap);
        ops().grouped_linear_forward(ctx(), up(x), weights, c.rows(), first, y);
        ops().grouped_linear_backward_input(
            ctx(), up(dy), weights.view().column_range(first, columns), c.rows(), dx);
        const Matrix y_part = part_of(exact_y), y_scale = part_of(scale_y);
        expect_close(y.download(), y_part, sum_bound(y_scale, y_part, in, out_type()));
        const Matrix dx_part = part_of(exact_dx), dx_scale = part_of(scale_dx);
        expect_close(dx.download(), dx_part, sum_bound(dx_scale, dx_part, out, out_type()));
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, GroupedLinearColumns,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes, kTypes),
                         kNames);

using GroupedLinearArguments = OperatorTest<>;

TEST_P(GroupedLinearArguments, FitTogether) {
    const Uploaded x = poison(6, 4, DType::fp32), w = poison(2 * 3, 4, DType::fp32);
    const Uploaded half = poison(2 * 3, 4, DType::bf16), y = poison(6, 3, DType::fp32);
    const auto forward = [&](ConstTensor from, ConstTensor with, std::vector<int32_t> row_begin,
                             int64_t first_column = 0) {
        ops().grouped_linear_forward(ctx(), from, with, ranges_of(row_begin), first_column, y);
    };
    EXPECT_THROW(forward(x, w, {0}), UsageError);
    EXPECT_THROW(forward(x, w, {0, 2, 4, 6, 6}), UsageError) << "w is not of four experts";
    EXPECT_THROW(forward(x, w, {0, 3, 7}), UsageError) << "more rows than there are";
    EXPECT_THROW(forward(x, w, {-1, 3, 6}), UsageError);
    EXPECT_THROW(forward(x, w, {0, 4, 3}), UsageError);
    EXPECT_THROW(forward(x, w, {0, 3, 6}, 1), UsageError) << "the last column is the third";
    EXPECT_THROW(forward(x, half, {0, 3, 6}), UsageError);
    EXPECT_THROW(forward(x.view().row_range(0, 5), w, {0, 3, 5}), UsageError);
    EXPECT_THROW(ops().grouped_linear_backward_weight(ctx(), y, x, ranges_of({0, 3, 6}), half,
                                                      /*accumulate=*/false),
                 UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, GroupedLinearArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

TEST(ReferenceGroupedLinear, GradientsAreThoseOfFiniteDifferences) {
    Context ctx({.poll = {}});
    const std::vector<RowRange> experts = ranges_of({0, 3, 3, 5, 6});
    const int64_t rows = 6, in = 4, out = 3;
    auto x = Matrix::random(rows, in, DType::fp64, 1);
    auto w = Matrix::random(4 * out, in, DType::fp64, 2);
    const auto dy = Matrix::random(rows, out, DType::fp64, 3);
    const auto loss = [&] {
        Matrix y(rows, out, DType::fp64);
        reference::grouped_linear_forward(ctx, x, w, experts, 0, y);
        return dot(y, dy);
    };
    Matrix dx(rows, in, DType::fp64), dw(4 * out, in, DType::fp64);
    reference::grouped_linear_backward_input(ctx, dy, w, experts, dx);
    reference::grouped_linear_backward_weight(ctx, dy, x, experts, dw, false);
    const auto bound = [](int64_t, int64_t) { return kDifferenceBound; };
    expect_close(dx, numeric_gradient(x, loss), bound);
    expect_close(dw, numeric_gradient(w, loss), bound);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
