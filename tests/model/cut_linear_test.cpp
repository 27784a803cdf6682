// SPDX-License-Identifier: Apache-2.0
// Products of linear layers that tensor ranks share and that no sum is cut in have the bits of the
// whole layer, given 32 columns and rows or more.
#include "src/model/blocks/cut_linear.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/host/operators.hpp"
#include "src/model/tensor_shard.hpp"
#include "src/runtime/tile_link/host.hpp"
#include "vocabpipe/tile_map.hpp"
#include "vocabpipe/world.hpp"

namespace vocabpipe::testing {
namespace {

constexpr int64_t kRows = 128, kWide = 96;
const std::vector<int64_t> kRanges = {128, 128, 256};  // a quarter of each is 32 or more
constexpr int64_t kCut = 512;                          // their sum

/// Dense fp32, NaN at first.
class Floats {
public:
    Floats(int64_t rows, int64_t cols)
        : rows_(rows),
          cols_(cols),
          values_(static_cast<size_t>(rows * cols), std::numeric_limits<float>::quiet_NaN()) {}
    static Floats random(int64_t rows, int64_t cols, unsigned seed) {
        Floats result(rows, cols);
        std::mt19937 engine(seed);
        std::uniform_real_distribution<float> value(-1, 1);
        for (float& v : result.values_) v = value(engine);
        return result;
    }
    [[nodiscard]] int64_t rows() const { return rows_; }
    [[nodiscard]] int64_t cols() const { return cols_; }
    [[nodiscard]] float& at(int64_t row, int64_t col) {
        return values_[static_cast<size_t>(row * cols_ + col)];
    }
    [[nodiscard]] float at(int64_t row, int64_t col) const {
        return values_[static_cast<size_t>(row * cols_ + col)];
    }
    [[nodiscard]] Tensor view() { return {values_.data(), rows_, cols_, DType::fp32}; }
    /// These rows and columns, in their order.
    [[nodiscard]] Floats part(const TensorShard& shard) const {
        Floats result(shard.row_count(), shard.column_count());
        auto to = result.values_.begin();
        for (const auto& rows : shard.rows) {
            for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
                for (const auto& columns : shard.columns) {
                    const auto from = values_.begin() + row * cols_ + columns.first;
                    to = std::copy(from, from + columns.count, to);
                }
            }
        }
        return result;
    }
    [[nodiscard]] Floats rows(RowRange range) const {
        return part({.rows = {{range.first, range.size()}}, .columns = {{0, cols_}}});
    }
    /// Added to what is there, element by element; one row is added to all.
    void add(const Floats& other) {
        for (size_t i = 0; i < values_.size(); ++i) {
            values_[i] += other.values_[i % other.values_.size()];
        }
    }
    [[nodiscard]] bool same_bits(const Floats& other) const {
        return values_.size() == other.values_.size() &&
               std::memcmp(values_.data(), other.values_.data(), values_.size() * sizeof(float)) ==
                   0;
    }

private:
    int64_t rows_, cols_;
    std::vector<float> values_;
};

/// A layer's parameters; gradients are NaN.
struct Layer {
    Floats w, b, dw, db;
    std::vector<Parameter> held = std::vector<Parameter>(2);

    Layer(Floats weight, Floats bias)
        : w(std::move(weight)),
          b(std::move(bias)),
          dw(w.view().rows, w.view().cols),
          db(1, b.view().cols) {
        held[0].name = "layer.weight";
        held[0].weight = w.view();
        held[0].gradient = dw.view();
        held[1].name = "layer.bias";
        held[1].weight = b.view();
        held[1].gradient = db.view();
    }
    Layer(const Layer&) = delete;
};

/// Which elements of a tensor with as many rows and columns a rank has.
TensorShard shard_of(int64_t rows, int64_t cols, TensorCut cut, std::vector<int64_t> ranges,
                     TeamPlace place) {
    LogicalParameter of{.name = "tensor", .rows = rows, .cols = cols};
    of.cut = cut;
    of.ranges = std::move(ranges);
    return tensor_shard(of, place);
}

Floats transpose(const Floats& m) {
    Floats result(m.cols(), m.rows());
    for (int64_t row = 0; row < m.rows(); ++row) {
        for (int64_t col = 0; col < m.cols(); ++col) result.at(col, row) = m.at(row, col);
    }
    return result;
}

/// body(pass, place, rows of the rank) on every rank of a world of threads.
template <typename Body>
void on_team(int ranks, int pieces, const Body& body) {
    const TileMap tiles = TileMap::even(kRows, ranks, pieces);
    World::threads(ranks, {.timeout_seconds = 60}).run([&](Communicator& c) {
        std::vector<int> everyone(static_cast<size_t>(ranks));
        std::iota(everyone.begin(), everyone.end(), 0);
        const auto link =
            make_host_tile_link(c.transport(), c.wait_options(), {.ranks = everyone, .poll = {}});
        Context ctx({.threads = 1, .poll = [&] { link->poll(); }});
        Floats gathered(kRows, kWide), received(kRows, kWide);
        const Microbatch microbatch;
        const StagePass pass{.ctx = ctx,
                             .microbatch = microbatch,
                             .scratch = {.rows = {},
                                         .workspace = {},
                                         .gathered = gathered.view(),
                                         .received = received.view()},
                             .team = {.link = link.get(), .tiles = &tiles}};
        body(pass, TeamPlace{c.rank(), ranks}, tiles.rows(c.rank()));
        c.barrier();
    });
}

class CutLinears : public ::testing::TestWithParam<std::tuple<int, int>> {
protected:
    [[nodiscard]] static int ranks() { return std::get<0>(GetParam()); }
    [[nodiscard]] static int pieces() { return std::get<1>(GetParam()); }
};

TEST_P(CutLinears, ColumnsHaveTheBitsOfTheWholeProduct) {
    const Floats w = Floats::random(kCut, kWide, 1), b = Floats::random(1, kCut, 2);
    Floats x = Floats::random(kRows, kWide, 3), dy = Floats::random(kRows, kCut, 4);
    const LinearOptions options{
        .files = {.name = "layer"}, .out = kRanges, .in = kWide, .bias = true};
    Context ctx({.threads = 1, .poll = {}});
    const Microbatch none;
    Layer whole(w, b);
    HeldParameters held(whole.held);
    const ColumnLinear alone(options, held);
    Floats y(kRows, kCut);
    alone.forward({.ctx = ctx, .microbatch = none}, x.view(), y.view());
    alone.backward_weight({.ctx = ctx, .microbatch = none}, dy.view(), x.view());

    on_team(ranks(), pieces(), [&](const StagePass& pass, TeamPlace place, RowRange own) {
        const TensorShard rows = shard_of(kCut, kWide, TensorCut::rows, kRanges, place);
        const TensorShard columns = shard_of(kRows, kCut, TensorCut::columns, kRanges, place);
        const TensorShard of_bias = shard_of(1, kCut, TensorCut::columns, kRanges, place);
        Layer part(w.part(rows), b.part(of_bias));
        HeldParameters parameters(part.held);
        const ColumnLinear linear(options, parameters);
        Floats own_x = x.rows(own), own_y(kRows, columns.column_count());
        linear.forward(pass, own_x.view(), own_y.view());
        EXPECT_TRUE(own_y.same_bits(y.part(columns)));
        Floats own_dy = dy.part(columns);
        linear.backward_weight(pass, own_dy.view(), own_x.view());
        EXPECT_TRUE(part.dw.same_bits(whole.dw.part(rows)));
        EXPECT_TRUE(part.db.same_bits(whole.db.part(of_bias)));
    });
}

TEST_P(CutLinears, RowsHaveTheBitsOfTheWholeGradients) {
    const Floats w = Floats::random(kWide, kCut, 1), b = Floats::random(1, kWide, 2);
    Floats x = Floats::random(kRows, kCut, 3), dy = Floats::random(kRows, kWide, 4);
    const LinearOptions options{
        .files = {.name = "layer"}, .out = {kWide}, .in = kCut, .bias = true};
    Context ctx({.threads = 1, .poll = {}});
    const Microbatch none;
    Layer whole(w, b);
    HeldParameters held(whole.held);
    const RowLinear alone(options, held);
    Floats dx(kRows, kCut);
    alone.backward_input({.ctx = ctx, .microbatch = none}, dy.view(), x.view(), dx.view());
    alone.backward_weight({.ctx = ctx, .microbatch = none}, dy.view(), x.view());

    on_team(ranks(), pieces(), [&](const StagePass& pass, TeamPlace place, RowRange own) {
        const TensorShard columns = shard_of(kWide, kCut, TensorCut::columns, {}, place);
        const TensorShard tokens = shard_of(kRows, kCut, TensorCut::columns, {}, place);
        for (const bool whole_backward : {false, true}) {
            Layer part(w.part(columns), b);
            HeldParameters parameters(part.held);
            const RowLinear linear(options, parameters);
            StagePass of = pass;
            of.weight_gradients.with_input = whole_backward;
            Floats own_dy = dy.rows(own), own_x = x.part(tokens);
            Floats own_dx(kRows, tokens.column_count());
            linear.backward_input(of, own_dy.view(), own_x.view(), own_dx.view());
            EXPECT_TRUE(own_dx.same_bits(dx.part(tokens)));
            linear.backward_weight(of, own_dy.view(), own_x.view());
            EXPECT_TRUE(part.dw.same_bits(whole.dw.part(columns)));
            // The bias's: of the rank's own rows.
            Floats db(1, kWide);
            Floats dw(kWide, kWide);
            kernels::host::linear_backward_weight(of.ctx, own_dy.view(), own_dy.view(), dw.view(),
                                                  db.view(), false);
            EXPECT_TRUE(part.db.same_bits(db));
        }
    });
}

/// The sum of all members' products, in fp32 and in their order; product(place) makes one of them.
template <typename Product>
Floats sum_over_members(int ranks, const Product& product) {
    Floats sum = product(TeamPlace{0, ranks});
    for (int member = 1; member < ranks; ++member) sum.add(product(TeamPlace{member, ranks}));
    return sum;
}

TEST_P(CutLinears, SumsAreThoseOfPlainProductsInTheOrderOfMembers) {
    const Floats w = Floats::random(kWide, kCut, 1), b = Floats::random(1, kWide, 2);
    const Floats w_t = transpose(w);  // of the layer whose input gradient is the same product
    const Floats x = Floats::random(kRows, kCut, 3), residual = Floats::random(kRows, kWide, 4);
    const auto of_x = [](TeamPlace place) {
        return shard_of(kRows, kCut, TensorCut::columns, {}, place);
    };
    const auto of_w = [](TeamPlace place) {
        return shard_of(kWide, kCut, TensorCut::columns, {}, place);
    };
    const auto of_w_t = [](TeamPlace place) {
        return shard_of(kCut, kWide, TensorCut::rows, {}, place);
    };
    Context ctx({.threads = 1, .poll = {}});
    Floats y = sum_over_members(ranks(), [&](TeamPlace place) {
        Floats product(kRows, kWide), part = w.part(of_w(place)), tokens = x.part(of_x(place));
        kernels::host::linear_forward(ctx, tokens.view(), part.view(), {}, product.view());
        return product;
    });
    y.add(b);
    y.add(residual);
    const Floats dx = sum_over_members(ranks(), [&](TeamPlace place) {
        Floats product(kRows, kWide), part = w_t.part(of_w_t(place)), tokens = x.part(of_x(place));
        kernels::host::linear_backward_input(ctx, tokens.view(), part.view(), product.view());
        return product;
    });

    on_team(ranks(), pieces(), [&](const StagePass& pass, TeamPlace place, RowRange own) {
        Floats tokens = x.part(of_x(place));
        Layer by_row(w.part(of_w(place)), b);
        HeldParameters row_parameters(by_row.held);
        const RowLinear row({.files = {.name = "layer"}, .out = {kWide}, .in = kCut, .bias = true},
                            row_parameters);
        Floats sum = residual.rows(own);
        row.forward_onto(pass, tokens.view(), sum.view(), sum.view());
        EXPECT_TRUE(sum.same_bits(y.rows(own)));

        Layer by_column(w_t.part(of_w_t(place)), Floats(1, kCut / place.ranks));
        HeldParameters column_parameters(by_column.held);
        const ColumnLinear column(
            {.files = {.name = "layer"}, .out = {kCut}, .in = kWide, .bias = true},
            column_parameters);
        Floats own_dx(own.size(), kWide);
        column.backward_input(pass, tokens.view(), own_dx.view());
        EXPECT_TRUE(own_dx.same_bits(dx.rows(own)));
    });
}

INSTANTIATE_TEST_SUITE_P(RanksAndPieces, CutLinears,
                         ::testing::Combine(::testing::Values(2, 4), ::testing::Values(1, 2)));

TEST(CutLinearParameters, SayWhatIsCut) {
    ParameterList list;
    const ColumnLinear column({.files = {.name = "qkv"}, .out = kRanges, .in = kWide, .bias = true},
                              list);
    const ColumnLinear one({.files = {.name = "fc"}, .out = {kCut}, .in = kWide}, list);
    const RowLinear row({.files = {.name = "proj"}, .out = {kWide}, .in = kCut, .bias = true},
                        list);
    const std::vector<LogicalParameter> all = list.take();
    ASSERT_EQ(all.size(), 5U);
    EXPECT_EQ(all[0].cut, TensorCut::rows);
    EXPECT_EQ(all[0].ranges, kRanges);
    EXPECT_EQ(all[0].rows, kCut);
    EXPECT_EQ(all[1].cut, TensorCut::columns);
    EXPECT_EQ(all[1].ranges, kRanges);
    EXPECT_EQ(all[2].cut, TensorCut::rows);
    EXPECT_TRUE(all[2].ranges.empty());
    EXPECT_EQ(all[3].cut, TensorCut::columns);
    EXPECT_TRUE(all[3].ranges.empty());
    EXPECT_EQ(all[4].cut, TensorCut::repeated);
}

}  // namespace
}  // namespace vocabpipe::testing
