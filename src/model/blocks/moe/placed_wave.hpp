// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/moe/routing_plan.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/tile_map.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// A wave as operators and messages take it: sizes on the host, and its lists where operators read.
/// Names are RoutingWave's.
struct PlacedWave {
    // As a home.
    std::vector<std::span<const int32_t>> tokens;  ///< [member]
    std::span<const int32_t> copy_of_token;        ///< (n, e)

    // As an owner of experts.
    std::vector<RowRange> copies;  ///< [source]
    std::vector<RowRange> rows;    ///< [own expert]
    /// Rows of gather_routes()'s tensor: those of the weights of each copy's token.
    std::span<const int32_t> weights_of_copy;
    std::span<const int32_t> slot_of_row;
    std::span<const int32_t> row_of_slot;  ///< (copies, k)
    std::vector<RoutingWave::Step> steps;

    [[nodiscard]] int64_t row_count() const { return std::ssize(slot_of_row); }
    [[nodiscard]] int64_t copy_count() const { return std::ssize(weights_of_copy); }
};

/// Numbers in the lists of one wave at most.
[[nodiscard]] int64_t most_list_numbers(const RoutingShape& shape);

/// `memory`, of operators, gets the lists in place of those of another wave: most_list_numbers().
[[nodiscard]] PlacedWave place_wave(Context& ctx, const RoutingShape& shape, RoutingWave wave,
                                    std::span<int32_t> memory);

}  // namespace vocabpipe
