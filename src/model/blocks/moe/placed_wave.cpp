// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/moe/placed_wave.hpp"

#include "vocabpipe/operators.hpp"

#include <cstddef>
#include <utility>

namespace vocabpipe {

int64_t most_list_numbers(const RoutingShape& shape) {
    const int64_t of_homes = shape.tokens * (shape.most_copies() + shape.members);
    const int64_t of_owners = shape.most_received() * (1 + shape.per_token) + shape.budget;
    return of_homes + of_owners;
}

PlacedWave place_wave(Context& ctx, const RoutingShape& shape, RoutingWave wave,
                      std::span<int32_t> memory) {
    std::vector<int32_t> weights_of_copy;
    weights_of_copy.reserve(wave.token_of_copy.size());
    for (const int64_t token : wave.token_of_copy) {
        const int64_t member = token / shape.tokens;
        weights_of_copy.push_back(
            static_cast<int32_t>((2 * member + 1) * shape.tokens + token % shape.tokens));
    }
    PlacedWave placed;
    placed.copies = std::move(wave.copies);
    placed.rows = std::move(wave.rows);
    placed.steps = std::move(wave.steps);
    std::vector<int32_t> lists;
    lists.reserve(memory.size());
    const auto add = [&](const std::vector<int32_t>& list) -> std::span<const int32_t> {
        const size_t first = lists.size();
        lists.insert(lists.end(), list.begin(), list.end());
        return memory.subspan(first, list.size());
    };
    for (const std::vector<int32_t>& of_member : wave.tokens) {
        placed.tokens.push_back(add(of_member));
    }
    placed.copy_of_token = add(wave.copy_of_token);
    placed.weights_of_copy = add(weights_of_copy);
    placed.slot_of_row = add(wave.slot_of_row);
    placed.row_of_slot = add(wave.row_of_slot);
    ctx.operators().write_from_host(ctx, lists, memory);
    return placed;
}

}  // namespace vocabpipe
