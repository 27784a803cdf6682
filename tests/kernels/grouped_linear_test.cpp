// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/host/operators.hpp"
#include "kernels/reference/operators.hpp"
#include "tests/conformance/expert_cases.hpp"
#include "tests/kernels/matrix.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

/// A sum of `terms` fp32 products in any order, then rounded to its type.
std::function<double(int64_t, int64_t)> product_bound(const Matrix& magnitude, const Matrix& exact,
                                                      int64_t terms, DType result) {
    return [&magnitude, &exact, terms, result](int64_t row, int64_t col) {
        return static_cast<double>(terms + 2) * kEps32 * magnitude.get(row, col) +
               unit_roundoff(result) * std::abs(exact.get(row, col)) * 1.01;
    };
}

class GroupedLinearOfType : public testing::TestWithParam<std::tuple<DType, DType>> {
protected:
    DType in_type() const { return std::get<0>(GetParam()); }
    DType out_type() const { return std::get<1>(GetParam()); }
    Context ctx{{.threads = 1, .poll = {}}};
};

TEST_P(GroupedLinearOfType, AgreesWithTheReferenceInAllDirections) {
    for (const ExpertRows& c : expert_rows()) {
        for (const auto& [in, out] : {std::pair{17, 9}, {40, 33}, {1, 1}, {64, 128}}) {
            SCOPED_TRACE(testing::Message() << c.name << ": " << in << " x " << out);
            const int64_t rows = c.row_begin.back() + 2, experts = std::ssize(c.row_begin) - 1;
            const auto x = Matrix::random(rows, in, in_type(), 1);
            const auto dy = Matrix::random(rows, out, in_type(), 2);
            const auto w = Matrix::random(experts * out, in, in_type(), 3);
            auto y = Matrix::random(rows, out, out_type(), 4);
            auto dx = Matrix::random(rows, in, out_type(), 5);
            auto exact_y = y.as(DType::fp64), scale_y = y.magnitude();
            auto exact_dx = dx.as(DType::fp64), scale_dx = dx.magnitude();
            host::grouped_linear_forward(ctx, x, w, c.rows(), 0, y);
            host::grouped_linear_backward_input(ctx, dy, w, c.rows(), dx);
            reference::grouped_linear_forward(ctx, x, w, c.rows(), 0, exact_y);
            reference::grouped_linear_forward(ctx, x.magnitude(), w.magnitude(), c.rows(), 0,
                                              scale_y);
            reference::grouped_linear_backward_input(ctx, dy, w, c.rows(), exact_dx);
            reference::grouped_linear_backward_input(ctx, dy.magnitude(), w.magnitude(), c.rows(),
                                                     scale_dx);
            expect_close(y, exact_y, product_bound(scale_y, exact_y, in, out_type()));
            expect_close(dx, exact_dx, product_bound(scale_dx, exact_dx, out, out_type()));
            for (const bool accumulate : {false, true}) {
                auto dw = accumulate ? Matrix::random(experts * out, in, DType::fp32, 6)
                                     : Matrix(experts * out, in, DType::fp32);
                auto exact_dw = dw.as(DType::fp64), scale_dw = dw.magnitude();
                host::grouped_linear_backward_weight(ctx, dy, x, c.rows(), dw, accumulate);
                reference::grouped_linear_backward_weight(ctx, dy, x, c.rows(), exact_dw,
                                                          accumulate);
                reference::grouped_linear_backward_weight(ctx, dy.magnitude(), x.magnitude(),
                                                          c.rows(), scale_dw, accumulate);
                expect_close(dw, exact_dw,
                             product_bound(scale_dw, exact_dw, rows + 1, DType::fp32));
            }
        }
    }
}

TEST_P(GroupedLinearOfType, GivesEveryExpertTheBitsOfALinearLayerOfItsOwn) {
    for (const int threads : {1, 2, 3}) {
        Context team({.threads = threads, .poll = {}});
        for (const ExpertRows& c : expert_rows()) {
            // Sums of 769 to 1200 terms are cut, and so are gradients of more than 512 columns.
            for (const auto& [in, out] : {std::pair{40, 33}, {1000, 65}, {300, 257}, {2083, 70}}) {
                SCOPED_TRACE(testing::Message()
                             << c.name << ", threads: " << threads << ", " << in);
                const int64_t rows = c.row_begin.back(), experts = std::ssize(c.row_begin) - 1;
                const auto x = Matrix::random(rows, in, in_type(), 1);
                const auto dy = Matrix::random(rows, out, in_type(), 2);
                const auto w = Matrix::random(experts * out, in, in_type(), 3);
                Matrix y(rows, out, out_type()), dx(rows, in, out_type());
                Matrix dw(experts * out, in, DType::fp32);
                host::grouped_linear_forward(team, x, w, c.rows(), 0, y);
                host::grouped_linear_backward_input(team, dy, w, c.rows(), dx);
                host::grouped_linear_backward_weight(team, dy, x, c.rows(), dw, false);

                Matrix own_y(rows, out, out_type()), own_dx(rows, in, out_type());
                Matrix own_dw(experts * out, in, DType::fp32);
                for (int64_t e = 0; e < experts; ++e) {
                    const int64_t first = c.row_begin[static_cast<size_t>(e)];
                    const int64_t count = c.row_begin[static_cast<size_t>(e) + 1] - first;
                    const auto w_e = w.view().row_range(e * out, out);
                    const auto x_e = x.view().row_range(first, count);
                    const auto dy_e = dy.view().row_range(first, count);
                    host::linear_forward(ctx, x_e, w_e, {}, own_y.view().row_range(first, count));
                    host::linear_backward_input(ctx, dy_e, w_e,
                                                own_dx.view().row_range(first, count));
                    host::linear_backward_weight(ctx, dy_e, x_e,
                                                 own_dw.view().row_range(e * out, out), {}, false);
                }
                EXPECT_TRUE(y.same_bits(own_y));
                EXPECT_TRUE(dx.same_bits(own_dx));
                EXPECT_TRUE(dw.same_bits(own_dw));
            }
        }
    }
}

TEST_P(GroupedLinearOfType, LeavesRowsOutsideOfTheExpertsAndPollsWhileItRuns) {
    int polls = 0;
    Context polled({.threads = 1, .poll = [&] { ++polls; }});
    const std::vector<int32_t> row_begin{3, 40, 40, 600};
    const int64_t in = 700, out = 300;
    const auto x = Matrix::random(650, in, in_type(), 1);
    const auto w = Matrix::random(3 * out, in, in_type(), 2);
    const auto before = Matrix::random(650, out, out_type(), 3);
    auto y = before;
    host::grouped_linear_forward(polled, x, w, ranges_of(row_begin), 0, y);
    for (const auto& [first, count] : {std::pair{0, 3}, {600, 50}}) {
        for (int64_t row = first; row < first + count; ++row) {
            for (int64_t col = 0; col < out; ++col) {
                ASSERT_EQ(y.get(row, col), before.get(row, col));
            }
        }
    }

    polls = 0;
    const std::vector<int32_t> many{0, 300, 650};
    const int64_t wide = 4000;
    const auto long_x = Matrix::random(650, wide, in_type(), 1);
    const auto long_w = Matrix::random(2 * 1500, wide, in_type(), 2);
    Matrix long_y(650, 1500, out_type());
    host::grouped_linear_forward(polled, long_x, long_w, ranges_of(many), 0, long_y);
    EXPECT_GE(polls, 1) << "7.8 GFLOP";
}

INSTANTIATE_TEST_SUITE_P(Types, GroupedLinearOfType,
                         testing::Combine(testing::Values(DType::fp32, DType::bf16),
                                          testing::Values(DType::fp32, DType::bf16)),
                         [](const auto& info) {
                             return std::string(name_of(std::get<0>(info.param))) + "_to_" +
                                    name_of(std::get<1>(info.param));
                         });

TEST(GroupedLinear, GivesTheSameBitsAfterItForgotItsPrimitives) {
    Context ctx({.threads = 2, .poll = {}});
    const int64_t in = 33, out = 17;
    const auto x = Matrix::random(1500, in, DType::fp32, 1);
    const auto w = Matrix::random(2 * out, in, DType::fp32, 2);
    Matrix y(1500, out, DType::fp32), again(1500, out, DType::fp32), dx(1500, in, DType::fp32);
    const std::vector<RowRange> halves{{0, 750}, {750, 1500}};
    host::grouped_linear_forward(ctx, x, w, halves, 0, y);
    for (int32_t rows = 2; rows < 1300; ++rows) {  // twice this is more shapes than are remembered
        const std::vector<int32_t> row_begin{0, rows, rows};
        host::grouped_linear_backward_input(ctx, y, w, ranges_of(row_begin), dx);
        host::grouped_linear_forward(ctx, x, w, ranges_of(row_begin), 0, again);
    }
    host::grouped_linear_forward(ctx, x, w, halves, 0, again);
    EXPECT_TRUE(again.same_bits(y));
}

TEST(GroupedLinear, MakesSomeColumnsAndRowsWithTheBitsOfAll) {
    Context ctx({.threads = 2, .poll = {}});
    const int64_t in = 96, out = 128;
    for (const DType type : {DType::fp32, DType::bf16}) {
        const auto x = Matrix::random(400, in, type, 1), dy = Matrix::random(400, out, type, 2);
        const auto w = Matrix::random(2 * out, in, type, 3);
        const std::vector<RowRange> rows{{0, 160}, {200, 400}};  // 160 .. 199 are nobody's
        Matrix y(400, out, type), dx(400, in, type), part_y(400, out, type), part_dx(400, in, type);
        host::grouped_linear_forward(ctx, x, w, rows, 0, y);
        host::grouped_linear_backward_input(ctx, dy, w, rows, dx);
        for (const auto& some : {std::vector<RowRange>{{0, 64}, {300, 400}},
                                 std::vector<RowRange>{{64, 160}, {200, 300}}}) {
            for (const RowRange columns : {RowRange{0, 32}, RowRange{32, 96}, RowRange{96, 128}}) {
                host::grouped_linear_forward(
                    ctx, x, w, some, columns.first,
                    part_y.view().column_range(columns.first, columns.size()));
            }
            for (const RowRange columns : {RowRange{0, 48}, RowRange{48, 96}}) {
                host::grouped_linear_backward_input(
                    ctx, dy, w.view().column_range(columns.first, columns.size()), some,
                    part_dx.view().column_range(columns.first, columns.size()));
            }
        }
        EXPECT_TRUE(part_y.same_bits(y));
        EXPECT_TRUE(part_dx.same_bits(dx));

        Matrix exact(400, 32, DType::fp64), all(400, out, DType::fp64);
        reference::grouped_linear_forward(ctx, x, w, rows, 96, exact);
        reference::grouped_linear_forward(ctx, x, w, rows, 0, all);
        EXPECT_EQ(exact.get(399, 5), all.get(399, 101));
    }
}

TEST(GroupedLinear, PassesOnWhatPollingThrows) {
    Context ctx({.threads = 2, .poll = [] { throw CommunicationError("a peer is gone"); }});
    const Matrix x(650, 4000, DType::fp32), w(2 * 1500, 4000, DType::fp32);
    Matrix y(650, 1500, DType::fp32);
    const std::vector<int32_t> row_begin{0, 300, 650};
    EXPECT_THROW(host::grouped_linear_forward(ctx, x, w, ranges_of(row_begin), 0, y),
                 CommunicationError);
}

TEST(ReferenceGroupedLinear, GradientsAreThoseOfFiniteDifferences) {
    Context ctx({.poll = {}});
    const std::vector<int32_t> row_begin{0, 3, 3, 5, 6};
    const int64_t rows = 6, in = 4, out = 3;
    auto x = Matrix::random(rows, in, DType::fp64, 1);
    auto w = Matrix::random(4 * out, in, DType::fp64, 2);
    const auto dy = Matrix::random(rows, out, DType::fp64, 3);
    const auto loss = [&] {
        Matrix y(rows, out, DType::fp64);
        reference::grouped_linear_forward(ctx, x, w, ranges_of(row_begin), 0, y);
        return dot(y, dy);
    };
    Matrix dx(rows, in, DType::fp64), dw(4 * out, in, DType::fp64);
    reference::grouped_linear_backward_input(ctx, dy, w, ranges_of(row_begin), dx);
    reference::grouped_linear_backward_weight(ctx, dy, x, ranges_of(row_begin), dw, false);
    const auto bound = [](int64_t, int64_t) { return kDifferenceBound; };
    expect_close(dx, numeric_gradient(x, loss), bound);
    expect_close(dw, numeric_gradient(w, loss), bound);
}

TEST(GroupedLinear, RefusesWrongArguments) {
    Context ctx({.poll = {}});
    const Matrix x(6, 4, DType::fp32), w(2 * 3, 4, DType::fp32), half(2 * 3, 4, DType::bf16);
    Matrix y(6, 3, DType::fp32), wide(2 * 3, 4, DType::bf16);
    const auto forward = [&](ConstTensor from, ConstTensor with, std::vector<int32_t> row_begin) {
        host::grouped_linear_forward(ctx, from, with, ranges_of(row_begin), 0, y);
    };
    EXPECT_THROW(forward(x, w, {0}), UsageError);
    EXPECT_THROW(forward(x, w, {0, 2, 4, 6, 6}), UsageError) << "w is not of four experts";
    EXPECT_THROW(forward(x, w, {0, 3, 7}), UsageError) << "more rows than there are";
    EXPECT_THROW(forward(x, w, {-1, 3, 6}), UsageError);
    EXPECT_THROW(forward(x, w, {0, 4, 3}), UsageError);
    EXPECT_THROW(forward(x, half, {0, 3, 6}), UsageError);
    EXPECT_THROW(forward(x.view().row_range(0, 5), w, {0, 3, 5}), UsageError);
    const std::vector<int32_t> row_begin{0, 3, 6};
    EXPECT_THROW(host::grouped_linear_backward_weight(ctx, y, x, ranges_of(row_begin), wide, false),
                 UsageError);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
