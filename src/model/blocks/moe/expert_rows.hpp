// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "vocabpipe/tensor.hpp"
#include "vocabpipe/tile_map.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// Maps tokens of a microbatch to rows of the experts and back (Operators::sort_by_expert()), as
/// views of memory that F leaves. Integers are 32-bit, in tensors of 32-bit elements.
struct ExpertRows {
    int64_t experts = 0;
    int64_t per_token = 0;  ///< k
    Tensor weights;         ///< (N, k) fp32
    Tensor choice;          ///< (N, k) integers
    // For all tokens of the rank. Empty in a team that dispatches tokens: it uses a RoutingPlan.
    Tensor row_of_slot;  ///< (N, k) integers
    Tensor slot_of_row;  ///< (N, k) integers
    Tensor row_begin;    ///< (1, E + 1) integers

    /// `alone`: no other rank sends tokens to this one.
    [[nodiscard]] static ExpertRows views(int64_t experts, int64_t per_token, bool alone,
                                          TokenViews& views) {
        ExpertRows rows{.experts = experts,
                        .per_token = per_token,
                        .weights = views.statistics(per_token),
                        .choice = views.statistics(per_token),
                        .row_of_slot = {},
                        .slot_of_row = {},
                        .row_begin = {}};
        if (!alone) return rows;
        rows.row_of_slot = views.statistics(per_token);
        rows.slot_of_row = views.statistics(per_token);
        rows.row_begin = views.numbers(experts + 1);
        return rows;
    }
    [[nodiscard]] static std::span<int32_t> integers(const Tensor& of) {
        return {of.as<int32_t>(), static_cast<size_t>(of.size())};
    }
    /// Rows of each expert in host memory, as grouped products need them. On a device with streams
    /// this waits until the router has run.
    [[nodiscard]] std::vector<RowRange> on_host(const StagePass& pass) const {
        std::vector<int32_t> begin(static_cast<size_t>(experts + 1));
        pass.op().read_to_host(pass.ctx, integers(row_begin), begin);
        std::vector<RowRange> rows;
        for (size_t e = 0; e + 1 < begin.size(); ++e) rows.push_back({begin[e], begin[e + 1]});
        return rows;
    }
};

/// Views memory of k rows per token as separate rows: (N, k cols) becomes (N k, cols).
[[nodiscard]] inline Tensor rows_of_slots(const Tensor& memory, int64_t per_token) {
    return {memory.data, memory.rows * per_token, memory.cols / per_token, memory.dtype};
}

}  // namespace vocabpipe
