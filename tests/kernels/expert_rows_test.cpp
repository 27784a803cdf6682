// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/host/operators.hpp"
#include "kernels/reference/operators.hpp"
#include "tests/kernels/expert_cases.hpp"
#include "tests/kernels/matrix.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct HostOrder {
    HostOrder(Context& ctx, const std::vector<int32_t>& choice, size_t experts)
        : row_begin(experts + 1, -7),
          row_of_slot(choice.size(), -7),
          slot_of_row(choice.size(), -7) {
        host::sort_by_expert(ctx, choice, row_begin, row_of_slot, slot_of_row);
    }
    std::vector<int32_t> row_begin, row_of_slot, slot_of_row;
};

TEST(SortByExpert, IsAStableSortOfTheSlots) {
    Context ctx({.poll = {}});
    for (const ChoiceCase& c : choice_cases()) {
        SCOPED_TRACE(c.name);
        const HostOrder order(ctx, c.choice, static_cast<size_t>(c.experts));
        std::vector<int32_t> sorted(c.choice.size());
        std::iota(sorted.begin(), sorted.end(), 0);
        std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) {
            return c.choice[static_cast<size_t>(a)] < c.choice[static_cast<size_t>(b)];
        });
        EXPECT_EQ(order.slot_of_row, sorted);
        for (size_t row = 0; row < sorted.size(); ++row) {
            EXPECT_EQ(order.row_of_slot[static_cast<size_t>(sorted[row])],
                      static_cast<int32_t>(row));
        }
        for (int32_t e = 0; e <= c.experts; ++e) {
            EXPECT_EQ(order.row_begin[static_cast<size_t>(e)],
                      std::count_if(c.choice.begin(), c.choice.end(),
                                    [&](int32_t expert) { return expert < e; }));
        }
        std::vector<int32_t> begin(order.row_begin.size()), rows(sorted.size()), slots(rows.size());
        reference::sort_by_expert(ctx, c.choice, begin, rows, slots);
        EXPECT_EQ(begin, order.row_begin);
        EXPECT_EQ(rows, order.row_of_slot);
        EXPECT_EQ(slots, order.slot_of_row);
    }
}

TEST(SortByExpert, RefusesExpertsThatDoNotExist) {
    Context ctx({.poll = {}});
    EXPECT_THROW(HostOrder(ctx, {0, 1, 2}, 2), UsageError);
    EXPECT_THROW(HostOrder(ctx, {0, -1, 1}, 2), UsageError);
}

class ExpertRowsOfType : public testing::TestWithParam<DType> {
protected:
    Context one{{.threads = 1, .poll = {}}}, two{{.threads = 2, .poll = {}}};
};

TEST_P(ExpertRowsOfType, AgreeWithTheReferenceOnAnyNumberOfThreads) {
    const DType type = GetParam();
    for (const ChoiceCase& c : choice_cases()) {
        for (const int64_t h : {1, 37, 300}) {
            SCOPED_TRACE(testing::Message() << c.name << ", h " << h);
            const HostOrder order(one, c.choice, static_cast<size_t>(c.experts));
            const int64_t slots = std::ssize(c.choice), tokens = slots / c.top_k;
            const auto x = Matrix::random(tokens, h, type, 1),
                       rows = Matrix::random(slots, h, type, 2);
            const auto weights = Matrix::random(tokens, c.top_k, DType::fp32, 3);
            const auto residual = Matrix::random(tokens, h, type, 4);
            for (Context* ctx : {&one, &two}) {
                for (const bool weighted : {false, true}) {
                    const ConstTensor some = weighted ? weights.view() : ConstTensor{};
                    Matrix y(slots, h, type), exact(slots, h, DType::fp64);
                    host::gather_rows(*ctx, x, order.slot_of_row, c.top_k, some, y);
                    reference::gather_rows(one, x, order.slot_of_row, c.top_k, some, exact);
                    expect_close(y, exact, rounded_once(exact, type));

                    for (const bool with_residual : {false, true}) {
                        const ConstTensor added = with_residual ? residual.view() : ConstTensor{};
                        Matrix sum = with_residual ? residual : Matrix(tokens, h, type);
                        Matrix exact_sum(tokens, h, DType::fp64);
                        // In place where there is a residual.
                        host::combine_rows(*ctx, rows, order.row_of_slot, c.top_k, some,
                                           with_residual ? sum.view() : Tensor{}, sum);
                        reference::combine_rows(one, rows, order.row_of_slot, c.top_k, some, added,
                                                exact_sum);
                        expect_close(sum, exact_sum, sum_of_slots(exact_sum, c.top_k, type));
                    }
                }
                Matrix dweights(tokens, c.top_k, DType::fp32);
                Matrix exact_dweights(tokens, c.top_k, DType::fp64);
                const auto dy = Matrix::random(slots, h, type, 5);
                host::combine_backward_weights(*ctx, dy, rows, order.slot_of_row, dweights);
                reference::combine_backward_weights(one, dy, rows, order.slot_of_row,
                                                    exact_dweights);
                expect_close(dweights, exact_dweights, [&](int64_t, int64_t) {
                    return static_cast<double>(h + 2) * static_cast<double>(h) * kEps32;
                });

                Matrix scaled = rows, exact_scaled(slots, h, DType::fp64);
                host::scale_rows(*ctx, scaled, order.slot_of_row, weights, scaled);
                reference::scale_rows(one, rows, order.slot_of_row, weights, exact_scaled);
                expect_close(scaled, exact_scaled, rounded_once(exact_scaled, type));
            }
        }
    }
}

TEST_P(ExpertRowsOfType, BitsAreTheSameForOneAndTwoThreads) {
    const DType type = GetParam();
    const int64_t tokens = 300, k = 4, h = 257;
    std::vector<int32_t> row_of_slot(static_cast<size_t>(tokens * k));
    std::iota(row_of_slot.rbegin(), row_of_slot.rend(), 0);
    const auto rows = Matrix::random(tokens * k, h, type, 1);
    const auto weights = Matrix::random(tokens, k, DType::fp32, 2);
    Matrix y1(tokens, h, type), y2(tokens, h, type);
    Matrix d1(tokens, k, DType::fp32), d2(tokens, k, DType::fp32);
    host::combine_rows(one, rows, row_of_slot, k, weights, {}, y1);
    host::combine_rows(two, rows, row_of_slot, k, weights, {}, y2);
    host::combine_backward_weights(one, rows, rows, row_of_slot, d1);
    host::combine_backward_weights(two, rows, rows, row_of_slot, d2);
    EXPECT_TRUE(y1.same_bits(y2));
    EXPECT_TRUE(d1.same_bits(d2));
}

TEST(CombineRows, AddsSlotsInTheirOrderInFp32AndRoundsOnce) {
    Context ctx({.poll = {}});
    for (const DType type : {DType::fp32, DType::bf16}) {
        Matrix rows(3, 1, type), y(2, 1, type);
        const double large = 0x1p30;
        rows.set(0, 0, large);
        rows.set(1, 0, 1);
        rows.set(2, 0, -large);
        const std::vector<int32_t> row_of_slot{0, 1, 2, 0, 2, 1};
        host::combine_rows(ctx, rows, row_of_slot, 3, {}, {}, y);
        EXPECT_EQ(y.get(0, 0), 0) << "2^30 + 1 is 2^30";
        EXPECT_EQ(y.get(1, 0), 1);
    }
}

TEST(CombineParts, AddsPartsInTheirOrderInFp32AndRoundsOnce) {
    Context one({.threads = 1, .poll = {}}), two({.threads = 2, .poll = {}});
    for (const DType type : {DType::fp32, DType::bf16}) {
        const int64_t tokens = 300, h = 70;
        const auto first = Matrix::random(90, h, type, 1), last = Matrix::random(300, h, type, 2);
        const auto residual = Matrix::random(tokens, h, type, 3);
        const std::vector<ConstTensor> parts{first.view(), {}, last.view()};
        std::vector<int32_t> row_of_slot;
        for (int32_t n = 0; n < tokens; ++n) {
            row_of_slot.insert(row_of_slot.end(), {n % 4 == 0 ? n / 4 : -1, -1, 299 - n});
        }
        for (const bool with_residual : {false, true}) {
            const ConstTensor added = with_residual ? residual.view() : ConstTensor{};
            Matrix exact(tokens, h, DType::fp64), sum(tokens, h, type), in_place = residual;
            reference::combine_parts(one, parts, row_of_slot, added, exact);
            host::combine_parts(one, parts, row_of_slot, added, sum);
            expect_close(sum, exact, sum_of_slots(exact, 2, type));
            host::combine_parts(two, parts, row_of_slot,
                                with_residual ? ConstTensor(in_place.view()) : ConstTensor{},
                                in_place);
            EXPECT_TRUE(in_place.same_bits(sum));
        }
        Matrix large(1, 1, type), small(1, 1, type), y(1, 1, type);
        large.set(0, 0, 0x1p30);
        small.set(0, 0, 1);
        Matrix minus = large.mapped(type, [](double value) { return -value; });
        host::combine_parts(one, std::vector<ConstTensor>{large.view(), small.view(), minus.view()},
                            std::vector<int32_t>{0, 0, 0}, {}, y);
        EXPECT_EQ(y.get(0, 0), 0) << "2^30 + 1 is 2^30";
        host::combine_parts(one, std::vector<ConstTensor>{large.view(), minus.view(), small.view()},
                            std::vector<int32_t>{0, 0, 0}, {}, y);
        EXPECT_EQ(y.get(0, 0), 1);
    }
}

TEST(CombineRows, LeavesOutSlotsWithoutARow) {
    Context ctx({.poll = {}});
    Matrix rows(2, 1, DType::fp32), y(3, 1, DType::fp32);
    rows.set(0, 0, 3);
    rows.set(1, 0, 5);
    const std::vector<int32_t> row_of_slot{0, 1, -1, 1, -1, -1};
    host::combine_rows(ctx, rows, row_of_slot, 2, {}, {}, y);
    EXPECT_EQ(y.get(0, 0), 8);
    EXPECT_EQ(y.get(1, 0), 5);
    EXPECT_EQ(y.get(2, 0), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, ExpertRowsOfType, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// y = sum over slots of weight * square(gathered row), as a layer of experts would do it.
TEST(ReferenceExpertRows, GradientsAreThoseOfFiniteDifferences) {
    Context ctx({.poll = {}});
    const std::vector<int32_t> choice{2, 0, 0, 3, 3, 2};
    const int64_t tokens = 3, k = 2, h = 3, slots = 6;
    const HostOrder order(ctx, choice, 4);
    auto x = Matrix::random(tokens, h, DType::fp64, 1);
    auto weights = Matrix::random(tokens, k, DType::fp64, 2);
    const auto dy = Matrix::random(tokens, h, DType::fp64, 3);
    const auto square = [](double value) { return value * value; };
    const auto loss = [&] {
        Matrix rows(slots, h, DType::fp64), y(tokens, h, DType::fp64);
        reference::gather_rows(ctx, x, order.slot_of_row, k, {}, rows);
        const Matrix squares = rows.mapped(DType::fp64, square);
        reference::combine_rows(ctx, squares, order.row_of_slot, k, weights, {}, y);
        return dot(y, dy);
    };
    Matrix rows(slots, h, DType::fp64), drows(slots, h, DType::fp64);
    reference::gather_rows(ctx, x, order.slot_of_row, k, {}, rows);
    const Matrix squares = rows.mapped(DType::fp64, square);
    reference::gather_rows(ctx, dy, order.slot_of_row, k, {}, drows);
    Matrix dweights(tokens, k, DType::fp64);
    reference::combine_backward_weights(ctx, drows, squares, order.slot_of_row, dweights);
    Matrix weighted(slots, h, DType::fp64), scaled(slots, h, DType::fp64);
    reference::gather_rows(ctx, dy, order.slot_of_row, k, weights, weighted);
    reference::scale_rows(ctx, drows, order.slot_of_row, weights, scaled);
    EXPECT_TRUE(weighted.same_bits(scaled)) << "two ways to the same rows";
    for (int64_t row = 0; row < slots; ++row) {
        for (int64_t i = 0; i < h; ++i) {
            drows.set(row, i, weighted.get(row, i) * 2 * rows.get(row, i));
        }
    }
    Matrix dx(tokens, h, DType::fp64);
    reference::combine_rows(ctx, drows, order.row_of_slot, k, {}, {}, dx);
    const auto bound = [](int64_t, int64_t) { return kDifferenceBound; };
    expect_close(dx, numeric_gradient(x, loss), bound);
    expect_close(dweights, numeric_gradient(weights, loss), bound);
}

TEST(ExpertRows, RefuseWrongArguments) {
    Context ctx({.poll = {}});
    const Matrix x(4, 3, DType::fp32), rows(8, 3, DType::fp32), weights(4, 2, DType::fp32);
    Matrix y(8, 3, DType::fp32), sum(4, 3, DType::fp32), half(8, 3, DType::bf16);
    const std::vector<int32_t> slots(8);
    EXPECT_THROW(host::gather_rows(ctx, x, slots, 0, {}, y), UsageError);
    EXPECT_THROW(host::gather_rows(ctx, x, slots, 2, {}, half), UsageError);
    EXPECT_THROW(host::gather_rows(ctx, x, slots, 3, weights, y), UsageError);
    EXPECT_THROW(host::combine_rows(ctx, rows, slots, 3, {}, {}, sum), UsageError);
    EXPECT_THROW(host::combine_rows(ctx, rows, slots, 2, {}, rows, sum), UsageError);
    EXPECT_THROW(host::combine_backward_weights(ctx, rows, half, slots, sum), UsageError);
    EXPECT_THROW(host::scale_rows(ctx, rows, slots, {}, y), UsageError);
    const std::vector<ConstTensor> parts{rows.view(), x.view()}, other{rows.view(), half.view()};
    EXPECT_THROW(host::combine_parts(ctx, {}, {}, {}, sum), UsageError);
    EXPECT_THROW(host::combine_parts(ctx, other, slots, {}, sum), UsageError);
    EXPECT_THROW(host::combine_parts(ctx, parts, slots, rows, sum), UsageError);
    EXPECT_THROW(host::combine_parts(ctx, parts, std::span(slots).first(7), {}, sum), UsageError);
    std::vector<int32_t> few(7), begin(3);
    EXPECT_THROW(host::read_to_host(ctx, slots, few), UsageError);
    EXPECT_THROW(host::sort_by_expert(ctx, slots, begin, few, few), UsageError);
}

}  // namespace
}  // namespace vocabpipe::kernels::test
