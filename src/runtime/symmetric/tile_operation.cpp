// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/tile_operation.hpp"

#include "vocabpipe/error.hpp"

#include <utility>

namespace vocabpipe {

TileOperation::TileOperation(SymmetricMemory& memory, TileOperationOptions options)
    : memory_(memory), options_(std::move(options)) {
    const TileFunctions& functions = options_.functions;
    if (!functions.shape || !functions.member || !functions.signal) {
        throw UsageError(options_.name + ": give f_S, f_R and f_C (TileFunctions)");
    }
    for (int64_t tile = 0; tile < functions.tiles; ++tile) ++tiles_of_[functions.signal(tile)];
}

TilePlace TileOperation::place_of(int64_t tile) const {
    if (tile < 0 || tile >= options_.functions.tiles) {
        throw UsageError(options_.name + ": tile " + std::to_string(tile) + " of " +
                         std::to_string(options_.functions.tiles) + " does not exist");
    }
    const TileArea shape = options_.functions.shape(tile);
    const int64_t stride = options_.columns * options_.element_bytes;
    return {.offset = options_.offset + shape.rows.first * stride +
                      shape.columns.first * options_.element_bytes,
            .row_bytes = shape.columns.size() * options_.element_bytes,
            .rows = shape.rows.size(),
            .stride = stride};
}

int TileOperation::signal_of(int64_t tile) const {
    return options_.first_signal + options_.functions.signal(tile);
}

uint64_t TileOperation::needed(int64_t tile) const {
    return round_ * tiles_of_.at(options_.functions.signal(tile));
}

void TileOperation::push(int64_t tile, int member) {
    const TilePlace place = place_of(tile);
    memory_.push(member, place, place, signal_of(tile));
}

void TileOperation::pull(int64_t tile, int member) {
    const TilePlace place = place_of(tile);
    memory_.pull(member, place, place);
}

void TileOperation::notify(int64_t tile, int member) {
    (void)place_of(tile);
    memory_.notify(member, signal_of(tile));
}

void TileOperation::notify_all(int64_t tile) {
    (void)place_of(tile);
    memory_.notify_all(signal_of(tile));
}

void TileOperation::wait(int64_t tile) {
    (void)place_of(tile);
    memory_.wait(
        signal_of(tile), needed(tile),
        {.operation = options_.name, .tile = tile, .member = options_.functions.member(tile)});
}

bool TileOperation::test(int64_t tile) {
    (void)place_of(tile);
    return memory_.test(signal_of(tile), needed(tile));
}

}  // namespace vocabpipe
