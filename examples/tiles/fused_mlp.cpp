// SPDX-License-Identifier: Apache-2.0
// An MLP whose exchanges are tiles, as TileLink fuses it: AG + GEMM, then GEMM + RS. Every rank has
// some tokens, some rows of the first weight and the same columns of the second. The products begin
// with the rank's own tokens and go on with those of others as they come; what they make for
// another rank leaves tile by tile. The result has the bits of one rank that makes all parts.
//
//     fused_mlp 4              four threads
//     mpirun -np 4 fused_mlp   four processes
#include "vocabpipe/context.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/tile_operation.hpp"
#include "vocabpipe/world.hpp"

#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

using namespace vocabpipe;

namespace {

constexpr int64_t kTokens = 96, kHidden = 64, kColumns = 80, kTile = 32;  // of a rank; of a tile

/// A part of a whole matrix: element (i, j) depends on first + i * stride + j.
struct Matrix {
    std::vector<float> values;
    Tensor view;
    Matrix(int64_t rows, int64_t cols, int64_t first = 0, int64_t stride = 0)
        : values(size_t(rows * cols)), view(values.data(), rows, cols, DType::fp32) {
        for (int64_t i = 0; i < rows * cols; ++i) {
            values[size_t(i)] = float((first + i / cols * stride + i % cols) * 37 % 101 - 50) / 64;
        }
    }
};

void run(Communicator& ranks) {
    const int size = ranks.size(), self = ranks.rank();
    const auto tokens_of = [](int r) {
        return Matrix(kTokens, kHidden, r * kTokens * kHidden, kHidden);
    };
    const auto up_of = [](int r) {
        return Matrix(kColumns, kHidden, r * kColumns * kHidden, kHidden);
    };
    const auto down_of = [&](int r) {
        return Matrix(kHidden, kColumns, r * kColumns, kColumns * size);
    };

    // A buffer has the tokens of all ranks, then what each rank makes of this one's tokens.
    const TileFunctions tiles = functions_of(TileGrid{.rows = kTokens * size,
                                                      .columns = kHidden,
                                                      .tile_rows = kTile,
                                                      .tile_columns = kHidden,
                                                      .members = size});
    const int64_t row_bytes = kHidden * int64_t(sizeof(float)), half = kTokens * size * row_bytes;
    const auto memory =
        open_symmetric_memory(ranks, {.bytes = 2 * half, .signals = 2 * int(tiles.tiles)});
    const Tensor x(memory->bytes().data(), kTokens * size, kHidden, DType::fp32);
    const Tensor made(memory->bytes().data() + half, kTokens * size, kHidden, DType::fp32);
    TileOperation gather(*memory, {"all-gather of x", tiles, kHidden, sizeof(float)});

    const auto device = make_host_device();
    const kernels::Operators& op = device->operators();
    Context ctx({.threads = 1, .poll = [&] { memory->poll(); }, .operators = &op});
    const Matrix up = up_of(self), down = down_of(self);
    op.convert(ctx, tokens_of(self).view, x.row_range(self * kTokens, kTokens));
    for (int hop = 1; hop < size; ++hop) {
        for (int64_t t = 0; t < tiles.tiles; ++t) {
            if (tiles.member(t) == self) gather.push(t, (self + hop) % size);
        }
    }
    Matrix before(kTile, kColumns), act(kTile, kColumns), part(kTile, kHidden);
    ctx.take_part_of(kTokens);  // the bits of all of a rank's tokens at once
    for (int hop = 0; hop < size; ++hop) {
        const int member = (self + hop) % size;
        for (int64_t t = 0; t < tiles.tiles; ++t) {
            if (tiles.member(t) != member) continue;
            if (hop > 0) gather.wait(t);
            const RowRange rows = tiles.shape(t).rows;
            op.linear_gelu_forward(ctx, x.row_range(rows.first, kTile), up.view, {}, before.view,
                                   act.view);
            op.linear_forward(ctx, act.view, down.view, {}, part.view);
            const int64_t to = self * kTokens + rows.first - member * kTokens;
            memory->push(member, std::as_bytes(std::span(part.values)), half + to * row_bytes,
                         int(tiles.tiles) + tiles.signal(t));
        }
    }
    ctx.take_part_of(0);
    for (int64_t t = 0; t < tiles.tiles; ++t) {
        if (tiles.member(t) != self) continue;
        memory->wait(int(tiles.tiles) + tiles.signal(t), uint64_t(size), {"sum of y", t});
    }
    Matrix y(kTokens, kHidden), expected(kTokens, kHidden);
    op.fold_partials(ctx, made, size, {}, {}, y.view);
    memory->close();

    Matrix all_before(kTokens, kColumns), all_act(kTokens, kColumns),
        parts(kTokens * size, kHidden);
    for (int r = 0; r < size; ++r) {
        op.linear_gelu_forward(ctx, tokens_of(self).view, up_of(r).view, {}, all_before.view,
                               all_act.view);
        op.linear_forward(ctx, all_act.view, down_of(r).view, {},
                          parts.view.row_range(r * kTokens, kTokens));
    }
    op.fold_partials(ctx, parts.view, size, {}, {}, expected.view);
    ranks.agree([&] {
        if (y.values != expected.values) throw Error(ExitCode::failed, "other bits than alone");
    });
    if (self == 0) std::printf("%d ranks have the bits of one\n", size);
}

}  // namespace

int main(int argc, char** argv) {
    World world = argc > 1 ? World::threads(std::atoi(argv[1])) : World::mpi();
    return world.run_program("fused_mlp", run);
}
