// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/conformance/expert_cases.hpp"
#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct SlotOrder {
    std::vector<int32_t> row_begin, row_of_slot, slot_of_row;

    SlotOrder(Context& ctx, const std::vector<int32_t>& choice, int64_t experts)
        : row_begin(static_cast<size_t>(experts) + 1),
          row_of_slot(choice.size()),
          slot_of_row(choice.size()) {
        reference::sort_by_expert(ctx, choice, row_begin, row_of_slot, slot_of_row);
    }
};

using ExpertOrder = OperatorTest<>;

TEST_P(ExpertOrder, IsAStableSortOfTheSlots) {
    for (const ChoiceCase& c : choice_cases()) {
        SCOPED_TRACE(c.name);
        const auto begin = up(std::vector<int32_t>(static_cast<size_t>(c.experts) + 1, -7));
        const auto rows = up(std::vector<int32_t>(c.choice.size(), -7));
        const auto slots = up(std::vector<int32_t>(c.choice.size(), -7));
        ops().sort_by_expert(ctx(), up(c.choice), begin, rows, slots);
        std::vector<int32_t> sorted(c.choice.size());
        std::iota(sorted.begin(), sorted.end(), 0);
        std::stable_sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) {
            return c.choice[static_cast<size_t>(a)] < c.choice[static_cast<size_t>(b)];
        });
        EXPECT_EQ(slots.download(), sorted);
        const auto row_of_slot = rows.download();
        for (size_t row = 0; row < sorted.size(); ++row) {
            EXPECT_EQ(row_of_slot[static_cast<size_t>(sorted[row])], static_cast<int32_t>(row));
        }
        std::vector<int32_t> row_begin(static_cast<size_t>(c.experts) + 1);
        ops().read_to_host(ctx(), begin, row_begin);
        for (int32_t e = 0; e <= c.experts; ++e) {
            EXPECT_EQ(row_begin[static_cast<size_t>(e)],
                      std::count_if(c.choice.begin(), c.choice.end(),
                                    [&](int32_t expert) { return expert < e; }));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, ExpertOrder,
                         testing::Combine(testing::ValuesIn(devices_under_test())), kNames);

using MovedRows = TypedOperatorTest;

TEST_P(MovedRows, AgreeWithTheReferenceForAnyThreads) {
    for (const ChoiceCase& c : choice_cases()) {
        for (const auto& [h, gap] : {std::pair{1, 3}, {37, 3}, {64, 8}, {300, 3}}) {
            if (device().slow() && (c.choice.size() > 800 || h > 64)) continue;
            SCOPED_TRACE(testing::Message() << c.name << ", h " << h);
            const SlotOrder order(host, c.choice, c.experts);
            const int64_t slots = std::ssize(c.choice), tokens = slots / c.top_k;
            const Matrix x = random_with_gap(tokens, h, type(), gap, 1);
            const Matrix rows = random_with_gap(slots, h, type(), gap, 2);
            const Matrix weights = random_with_gap(tokens, c.top_k, DType::fp32, gap, 3);
            const Matrix residual = random_with_gap(tokens, h, type(), gap, 4);
            const Matrix dy = random_with_gap(slots, h, type(), gap, 5);
            const Uploaded x_in = up(x), rows_in = up(rows), weigh = up(weights), dy_in = up(dy);
            const auto slot_of_row = up(order.slot_of_row), row_of_slot = up(order.row_of_slot);
            for (Context* ctx : device().threads()) {
                for (const bool weighted : {false, true}) {
                    const ConstTensor some = weighted ? weights.view() : ConstTensor{};
                    const ConstTensor some_in = weighted ? ConstTensor(weigh) : ConstTensor{};
                    const Uploaded gathered = poison(slots, h, type(), gap);
                    Matrix exact(slots, h, DType::fp64);
                    ops().gather_rows(*ctx, x_in, slot_of_row, c.top_k, some_in, gathered);
                    reference::gather_rows(host, x, order.slot_of_row, c.top_k, some, exact);
                    expect_close(gathered.download(), exact, rounded_once(exact, type()));
                    for (const bool with_residual : {false, true}) {
                        // In place where there is a residual.
                        const Uploaded sum =
                            with_residual ? up(residual) : poison(tokens, h, type(), gap);
                        Matrix exact_sum(tokens, h, DType::fp64);
                        ops().combine_rows(*ctx, rows_in, row_of_slot, c.top_k, some_in,
                                           with_residual ? ConstTensor(sum) : ConstTensor{}, sum);
                        reference::combine_rows(host, rows, order.row_of_slot, c.top_k, some,
                                                with_residual ? residual.view() : ConstTensor{},
                                                exact_sum);
                        expect_close(sum.download(), exact_sum,
                                     sum_of_slots(exact_sum, c.top_k, type()));
                    }
                }
                const Uploaded dweights = poison(tokens, c.top_k, DType::fp32);
                Matrix exact_dweights(tokens, c.top_k, DType::fp64);
                ops().combine_backward_weights(*ctx, dy_in, rows_in, slot_of_row, dweights);
                reference::combine_backward_weights(host, dy, rows, order.slot_of_row,
                                                    exact_dweights);
                expect_close(dweights.download(), exact_dweights, [width = h](int64_t, int64_t) {
                    return static_cast<double>((width + 2) * width) * kEps32;
                });
                const Uploaded scaled = up(rows);  // in place
                Matrix exact_scaled(slots, h, DType::fp64);
                ops().scale_rows(*ctx, scaled, slot_of_row, weigh, scaled);
                reference::scale_rows(host, rows, order.slot_of_row, weights, exact_scaled);
                expect_close(scaled.download(), exact_scaled, rounded_once(exact_scaled, type()));
            }
        }
    }
}

TEST_P(MovedRows, HaveTheSameBitsForAnyThreads) {
    const int64_t tokens = 300, k = 4, h = 257;
    std::vector<int32_t> reversed(static_cast<size_t>(tokens * k));
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    const auto row_of_slot = up(reversed);
    const Uploaded rows = up(Matrix::random(tokens * k, h, type(), 1));
    const Uploaded weights = up(Matrix::random(tokens, k, DType::fp32, 2));
    expect_same_bits_with_any_threads([&](Context& ctx) {
        const Uploaded y = poison(tokens, h, type()), dweights = poison(tokens, k, DType::fp32);
        ops().combine_rows(ctx, rows, row_of_slot, k, weights, {}, y);
        ops().combine_backward_weights(ctx, rows, rows, row_of_slot, dweights);
        return std::vector{y.download(), dweights.download()};
    });
}

TEST_P(MovedRows, PartsAgreeWithTheReferenceForAnyThreads) {
    for (const auto& [tokens, h] : {std::pair{20, 37}, {20, 64}, {300, 70}}) {
        SCOPED_TRACE(testing::Message() << tokens << " x " << h);
        const auto first = Matrix::random((tokens + 3) / 4, h, type(), 1);
        const auto last = Matrix::random(tokens, h, type(), 2);
        const auto residual = Matrix::random(tokens, h, type(), 3);
        std::vector<int32_t> slots;
        for (int32_t n = 0; n < tokens; ++n) {
            slots.insert(slots.end(), {n % 4 == 0 ? n / 4 : -1, -1, tokens - 1 - n});
        }
        const Uploaded first_in = up(first), last_in = up(last);
        const std::vector<ConstTensor> parts{first_in, {}, last_in};
        const auto row_of_slot = up(slots);
        for (const bool with_residual : {false, true}) {
            const Uploaded around = up(residual);
            Matrix exact(tokens, h, DType::fp64);
            reference::combine_parts(host, std::vector<ConstTensor>{first.view(), {}, last.view()},
                                     slots, with_residual ? residual.view() : ConstTensor{}, exact);
            const Matrix sum = with_any_threads([&, tokens = tokens, h = h](Context& ctx) {
                const Uploaded y = poison(tokens, h, type());
                ops().combine_parts(ctx, parts, row_of_slot,
                                    with_residual ? ConstTensor(around) : ConstTensor{}, y);
                return y.download();
            });
            expect_close(sum, exact, sum_of_slots(exact, 2, type()));
            ops().combine_parts(ctx(), parts, row_of_slot,
                                with_residual ? ConstTensor(around) : ConstTensor{}, around);
            EXPECT_TRUE(around.download().same_bits(sum)) << "in place";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, MovedRows,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

/// In fp32, one addition after the other: the reference rounds once.
using RowOrder = TypedOperatorTest;

TEST_P(RowOrder, SlotsAndPartsAreAddedInTheirOrderAndRoundedOnce) {
    const auto number = [&](double value) {
        return Matrix(1, 1, type()).mapped(type(), [=](double) { return value; });
    };
    Matrix rows(3, 1, type());
    rows.set(0, 0, 0x1p30);
    rows.set(1, 0, 1);
    rows.set(2, 0, -0x1p30);
    const Uploaded y = poison(2, 1, type()), sum = poison(1, 1, type());
    ops().combine_rows(ctx(), up(rows), up(std::vector<int32_t>{0, 1, 2, 0, 2, 1}), 3, {}, {}, y);
    EXPECT_EQ(y.download().get(0, 0), 0) << "2^30 + 1 is 2^30";
    EXPECT_EQ(y.download().get(1, 0), 1);
    const Uploaded large = up(number(0x1p30)), small = up(number(1)), minus = up(number(-0x1p30));
    const auto firsts = up(std::vector<int32_t>(3));
    ops().combine_parts(ctx(), std::vector<ConstTensor>{large, small, minus}, firsts, {}, sum);
    EXPECT_EQ(sum.download().get(0, 0), 0);
    ops().combine_parts(ctx(), std::vector<ConstTensor>{large, minus, small}, firsts, {}, sum);
    EXPECT_EQ(sum.download().get(0, 0), 1);
}

INSTANTIATE_TEST_SUITE_P(Devices, RowOrder,
                         testing::Combine(testing::ValuesIn(product_devices()), kTypes), kNames);

using ExpertRowsArguments = OperatorTest<>;

TEST_P(ExpertRowsArguments, SlotsWithoutARowAddNothing) {
    Matrix rows(2, 1, DType::fp32);
    rows.set(0, 0, 3);
    rows.set(1, 0, 5);
    const Uploaded y = poison(3, 1, DType::fp32);
    ops().combine_rows(ctx(), up(rows), up(std::vector<int32_t>{0, 1, -1, 1, -1, -1}), 2, {}, {},
                       y);
    const Matrix sum = y.download();
    EXPECT_EQ(sum.get(0, 0), 8);
    EXPECT_EQ(sum.get(1, 0), 5);
    EXPECT_EQ(sum.get(2, 0), 0);
}

TEST_P(ExpertRowsArguments, FitTogether) {
    const Uploaded x = poison(4, 3, DType::fp32), rows = poison(8, 3, DType::fp32);
    const Uploaded weights = poison(4, 2, DType::fp32), y = poison(8, 3, DType::fp32);
    const Uploaded sum = poison(4, 3, DType::fp32), half = poison(8, 3, DType::bf16);
    const auto slots = up(std::vector<int32_t>(8)), few = up(std::vector<int32_t>(7));
    const auto begin = up(std::vector<int32_t>(3));
    EXPECT_THROW(ops().gather_rows(ctx(), x, slots, 0, {}, y), UsageError);
    EXPECT_THROW(ops().gather_rows(ctx(), x, slots, 2, {}, half), UsageError);
    EXPECT_THROW(ops().gather_rows(ctx(), x, slots, 3, weights, y), UsageError);
    EXPECT_THROW(ops().combine_rows(ctx(), rows, slots, 3, {}, {}, sum), UsageError);
    EXPECT_THROW(ops().combine_rows(ctx(), rows, slots, 2, {}, rows, sum), UsageError);
    EXPECT_THROW(ops().combine_backward_weights(ctx(), rows, half, slots, sum), UsageError);
    EXPECT_THROW(ops().scale_rows(ctx(), rows, slots, {}, y), UsageError);
    const std::vector<ConstTensor> parts{rows, x}, other{rows, half};
    EXPECT_THROW(ops().combine_parts(ctx(), {}, {}, {}, sum), UsageError);
    EXPECT_THROW(ops().combine_parts(ctx(), other, slots, {}, sum), UsageError);
    EXPECT_THROW(ops().combine_parts(ctx(), parts, slots, rows, sum), UsageError);
    EXPECT_THROW(ops().combine_parts(ctx(), parts, few, {}, sum), UsageError);
    std::vector<int32_t> on_host(7);
    EXPECT_THROW(ops().read_to_host(ctx(), slots, on_host), UsageError);
    EXPECT_THROW(ops().sort_by_expert(ctx(), slots, begin, few, few), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, ExpertRowsArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

// y = sum over slots of weight * square(gathered row), as a layer of experts would do it.
TEST(ReferenceExpertRows, GradientsAreThoseOfFiniteDifferences) {
    Context ctx({.poll = {}});
    const std::vector<int32_t> choice{2, 0, 0, 3, 3, 2};
    const int64_t tokens = 3, k = 2, h = 3, slots = 6;
    const SlotOrder order(ctx, choice, 4);
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

}  // namespace
}  // namespace vocabpipe::kernels::test
