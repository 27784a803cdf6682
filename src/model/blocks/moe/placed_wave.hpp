// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/moe/routing_plan.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/tile_map.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// A wave in the form that operators and messages take: sizes on the host, lists in memory that
/// operators read. Fields have the meaning that they have in RoutingWave.
struct PlacedWave {
    // The member as a home.
    std::vector<std::span<const int32_t>> tokens;  ///< [member]
    std::span<const int32_t> copy_of_token;        ///< (n, e)

    // The member as an owner of experts.
    std::vector<RowRange> copies;  ///< [source]
    std::vector<RowRange> rows;    ///< [own expert]
    /// For each copy, the row of gather_routes()'s tensor with the weights of its token.
    std::span<const int32_t> weights_of_copy;
    std::span<const int32_t> slot_of_row;
    std::span<const int32_t> row_of_slot;  ///< (copies, k)
    std::vector<RoutingWave::Step> steps;

    [[nodiscard]] int64_t row_count() const { return std::ssize(slot_of_row); }
    [[nodiscard]] int64_t copy_count() const { return std::ssize(weights_of_copy); }
};

/// The most numbers that the lists of one wave can have.
[[nodiscard]] int64_t most_list_numbers(const RoutingShape& shape);

/// Writes the lists to `memory` (most_list_numbers() numbers that operators can read), over those
/// of another wave.
[[nodiscard]] PlacedWave place_wave(Context& ctx, const RoutingShape& shape, RoutingWave wave,
                                    std::span<int32_t> memory);

}  // namespace vocabpipe
