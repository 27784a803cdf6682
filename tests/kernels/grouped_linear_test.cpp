// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "kernels/host/operators.hpp"
#include "tests/conformance/expert_cases.hpp"
#include "tests/kernels/matrix.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

class GroupedLinearOfType : public testing::TestWithParam<std::tuple<DType, DType>> {
protected:
    DType in_type() const { return std::get<0>(GetParam()); }
    DType out_type() const { return std::get<1>(GetParam()); }
    Context ctx{{.threads = 1, .poll = {}}};
};

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

TEST_P(GroupedLinearOfType, PollsWhileItRunsAndPassesOnWhatPollingThrows) {
    const Matrix x(650, 4000, in_type()), w(2 * 1500, 4000, in_type());  // 7.8 GFLOP
    Matrix y(650, 1500, out_type());
    for (const int threads : {1, 2}) {
        Context polled(
            {.threads = threads, .poll = [] { throw CommunicationError("a peer is gone"); }});
        EXPECT_THROW(host::grouped_linear_forward(polled, x, w, ranges_of({0, 300, 650}), 0, y),
                     CommunicationError);
    }
}

INSTANTIATE_TEST_SUITE_P(Types, GroupedLinearOfType,
                         testing::Combine(testing::Values(DType::fp32, DType::bf16),
                                          testing::Values(DType::fp32, DType::bf16)),
                         [](const auto& info) {
                             return std::string(name_of(std::get<0>(info.param))) + "_to_" +
                                    name_of(std::get<1>(info.param));
                         });

TEST(GroupedLinear, GivesTheSameBitsAfterOtherShapes) {
    Context ctx({.threads = 2, .poll = {}});
    const int64_t in = 33, out = 17;
    const auto x = Matrix::random(1500, in, DType::fp32, 1);
    const auto w = Matrix::random(2 * out, in, DType::fp32, 2);
    Matrix y(1500, out, DType::fp32), again(1500, out, DType::fp32), dx(1500, in, DType::fp32);
    const std::vector<RowRange> halves{{0, 750}, {750, 1500}};
    host::grouped_linear_forward(ctx, x, w, halves, 0, y);
    for (const int32_t rows : {2, 31, 1299}) {  // in the same memory
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
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
