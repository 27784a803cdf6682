// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/tensor_team.hpp"

#include "src/model/blocks/whole_exchange.hpp"
#include "src/model/views.hpp"
#include "vocabpipe/tile_link.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

namespace {

/// (N, cols) in a tensor of the pass's scratch.
Tensor all_rows(const StagePass& pass, Tensor memory, int64_t cols) {
    return {memory.data, pass.team.tiles->rows(), cols, memory.dtype};
}

/// The byte offsets at which the pieces of every member's rows end, for TileLink.
std::vector<std::vector<int64_t>> ends_of(const TileMap& tiles, int64_t row_bytes) {
    std::vector<std::vector<int64_t>> ends;
    for (int member = 0; member < tiles.members(); ++member) {
        ends.push_back(tiles.ends(member, row_bytes));
    }
    return ends;
}

/// sum_rows() where every member has all rows.
void sum_on_all(const StagePass& pass, std::string_view name, const MakePartial& make,
                const Addends& addends, Tensor out) {
    TileLink& link = *pass.team.link;
    const Tensor partials(pass.scratch.received.data, link.size() * out.rows, out.cols, out.dtype);
    const auto make_own = [&](Tensor own) { make({0, out.rows}, own); };
    sum_whole(pass, link, name, partials, make_own, addends.bias, addends.residual, out);
}

/// Call after each product of an exchange. An exchange has a product and a wait per piece and
/// member; a device with streams queues no second one before the first has begun to run.
void end_part(const StagePass& pass) {
    pass.ctx.poll();
}

}  // namespace

ConstTensor gather_rows(const StagePass& pass, ConstTensor own, std::string_view name,
                        const WorkOnPiece& work) {
    if (!pass.team.cuts_rows()) {
        if (work) work(own, kAllRows);
        return own;
    }
    TileLink& link = *pass.team.link;
    const TileMap& tiles = *pass.team.tiles;
    const Tensor all = all_rows(pass, pass.scratch.gathered, own.cols);
    const auto ends = ends_of(tiles, own.cols * size_of(own.dtype));
    std::vector<TileLink::Outgoing> send;
    std::vector<TileLink::Incoming> receive;
    for (int member = 0; member < link.size(); ++member) {
        send.push_back({.bytes = bytes_of<const std::byte>(own),
                        .ends = ends[static_cast<size_t>(link.rank())]});
        receive.push_back({.bytes = bytes_of<std::byte>(rows_of(all, tiles.rows(member))),
                           .ends = ends[static_cast<size_t>(member)]});
    }
    const std::string what = "all-gather for " + std::string(name);
    TileLink::Operation operation = link.all_to_all(send, receive, {.what = what});
    for (int i = 0; i < link.size(); ++i) {
        operation.release(link.to(i), tiles.pieces(link.rank()));
    }
    const PartOfRows part(pass.ctx, tiles.rows());
    for (int i = 0; work && i < link.size(); ++i) {
        const int member = link.from(i);
        for (int piece = 0; piece < tiles.pieces(member);) {
            const int end = operation.wait(member, piece + 1);
            const RowRange rows = tiles.rows(member, piece, end);
            work(rows_of(all, rows), rows);
            piece = end;
        }
    }
    operation.finish();
    end_part(pass);
    return all;
}

void sum_rows(const StagePass& pass, std::string_view name, const MakePartial& make,
              const Addends& addends, Tensor out) {
    if (!pass.team.cuts_rows()) return sum_on_all(pass, name, make, addends, out);
    TileLink& link = *pass.team.link;
    const TileMap& tiles = *pass.team.tiles;
    const Tensor leaving = all_rows(pass, pass.scratch.gathered, out.cols);
    const Tensor partials = all_rows(pass, pass.scratch.received, out.cols);
    const auto ends = ends_of(tiles, out.cols * size_of(out.dtype));
    std::vector<TileLink::Outgoing> send(static_cast<size_t>(link.size()));
    std::vector<TileLink::Incoming> receive(send.size());
    for (int member = 0; member < link.size(); ++member) {
        if (member == link.rank()) continue;  // own rows are made in place
        const auto at = static_cast<size_t>(member);
        send[at] = {.bytes = bytes_of<const std::byte>(rows_of(leaving, tiles.rows(member))),
                    .ends = ends[at]};
        receive[at] = {
            .bytes = bytes_of<std::byte>(partials.row_range(member * out.rows, out.rows)),
            .ends = ends[static_cast<size_t>(link.rank())]};
    }
    const std::string what = "reduce-scatter for " + std::string(name);
    TileLink::Operation operation = link.all_to_all(send, receive, {.what = what});
    const PartOfRows part(pass.ctx, tiles.rows());
    for (int i = 1; i < link.size(); ++i) {
        const int member = link.to(i);
        tiles.each_product(member, [&](int first, int end) {
            const RowRange rows = tiles.rows(member, first, end);
            make(rows, rows_of(leaving, rows));
            operation.release(member, end);
        });
    }
    make(tiles.rows(link.rank()), partials.row_range(link.rank() * out.rows, out.rows));
    operation.finish();
    pass.op().fold_partials(pass.ctx, partials, link.size(), addends.bias, addends.residual, out);
    end_part(pass);
}

void sum_numbers(const StagePass& pass, TileLink& link, std::span<const Tensor> numbers,
                 std::string_view name) {
    int64_t count = 0;
    for (const Tensor& some : numbers) count += some.cols;
    const Tensor all = Views(pass.scratch.workspace).take(link.size(), count, DType::fp32);
    const Tensor own = all.row_range(link.rank(), 1);
    int64_t first = 0;
    for (const Tensor& some : numbers) {
        pass.op().copy(pass.ctx, bytes_of<const std::byte>(some),
                       bytes_of<std::byte>(own.column_range(first, some.cols)));
        first += some.cols;
    }
    exchange_whole(link, "sums for " + std::string(name),
                   [&](int member) { return all.row_range(member, 1); });
    first = 0;
    for (const Tensor& some : numbers) {
        pass.op().fold_partials(pass.ctx, all.column_range(first, some.cols), link.size(), {}, {},
                                some);
        first += some.cols;
    }
}

}  // namespace vocabpipe
