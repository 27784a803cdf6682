// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments of a mixture of experts' operators that all devices share. They throw
// UsageError.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>

#include "kernels/check.hpp"
#include "vocabpipe/router_options.hpp"
#include "vocabpipe/tile_map.hpp"

namespace vocabpipe::kernels {

inline void require_router_options(const RouterOptions& options, int64_t experts) {
    require(options.top_k >= 1 && options.top_k <= experts, "top_k from 1 to the experts");
    require(options.groups >= 1 && experts % options.groups == 0, "groups that divide the experts");
    require(options.top_groups >= 1 && options.top_groups <= options.groups,
            "top_groups from 1 to groups");
    require(options.top_k <= options.top_groups * (experts / options.groups),
            "top_k experts in top_groups groups");
}

/// `weights` or its gradient.
inline void require_router(ConstTensor logits, const RouterOptions& options,
                           std::span<const int32_t> choice, ConstTensor weights, ConstTensor load,
                           ConstTensor log_z) {
    require_router_options(options, logits.cols);
    require(logits.dtype == DType::fp32 && weights.dtype == DType::fp32 &&
                load.dtype == DType::fp32 && log_z.dtype == DType::fp32,
            "fp32 tensors of a router");
    require(std::ssize(choice) == logits.rows * options.top_k, "choice of N k experts");
    require(has_shape(weights, logits.rows, options.top_k), "weights, dweights (N, k)");
    require(has_shape(load, 1, logits.cols), "load (1, experts)");
    require(has_shape(log_z, logits.rows, 1), "log_z (N, 1)");
}

/// In addition to require_router().
inline void require_router_forward(ConstTensor logits, ConstTensor bias, ConstTensor score_sums) {
    require(!bias || (has_shape(bias, 1, logits.cols) && bias.dtype == DType::fp32),
            "bias (1, experts) fp32, or none");
    require(has_shape(score_sums, 1, logits.cols) && score_sums.dtype == DType::fp32,
            "score_sums (1, experts) fp32");
}

inline void require_sum_routing(ConstTensor load, ConstTensor score_sums, ConstTensor log_z,
                                std::span<const double> sums) {
    require(load.rows == 1 && same_shape(load, score_sums) && load.dtype == DType::fp32 &&
                score_sums.dtype == DType::fp32,
            "load and score_sums (1, experts) fp32");
    require(log_z.rows >= 1 && log_z.cols == 1 && log_z.dtype == DType::fp32, "log_z (N, 1) fp32");
    require(std::ssize(sums) == kExpertLoads + load.cols, "3 + experts sums");
}

inline void require_sum_reports(std::span<const double> reports, int64_t entries, int64_t first,
                                std::span<const double> sums) {
    require(entries >= 1 && std::ssize(reports) % entries == 0, "reports of equally many entries");
    require(first >= 0 && first + std::ssize(sums) <= entries, "sums of entries of a report");
}

inline void require_correction_bias(std::span<const double> loads, ConstTensor bias) {
    require(!loads.empty() && has_shape(bias, 1, std::ssize(loads)) && bias.dtype == DType::fp32,
            "bias (1, experts) fp32, one load per expert");
}

inline void require_expert_order(std::span<const int32_t> choice,
                                 std::span<const int32_t> row_begin,
                                 std::span<const int32_t> row_of_slot,
                                 std::span<const int32_t> slot_of_row) {
    require(row_begin.size() >= 2, "row_begin of experts + 1 numbers");
    require(row_of_slot.size() == choice.size() && slot_of_row.size() == choice.size(),
            "a row per slot and a slot per row");
}

/// `weights` may be empty.
inline void require_slot_weights(ConstTensor weights, int64_t tokens, int64_t per_token) {
    require(!weights || (has_shape(weights, tokens, per_token) && weights.dtype == DType::fp32),
            "weights (N, k) fp32, or none");
}

inline void require_gather_rows(ConstTensor x, std::span<const int32_t> slot_of_row,
                                int64_t per_token, ConstTensor weights, ConstTensor y) {
    require(per_token >= 1, "a slot per token or more");
    require(has_shape(y, std::ssize(slot_of_row), x.cols) && x.dtype == y.dtype,
            "y with a row per slot, of x's width and type");
    require_slot_weights(weights, x.rows, per_token);
}

inline void require_combine_rows(ConstTensor rows, std::span<const int32_t> row_of_slot,
                                 int64_t per_token, ConstTensor weights, ConstTensor residual,
                                 ConstTensor y) {
    require(per_token >= 1 && std::ssize(row_of_slot) == y.rows * per_token, "N k slots");
    require(y.cols == rows.cols && y.dtype == rows.dtype, "y of the rows' width and type");
    require(!residual || (same_shape(residual, y) && residual.dtype == y.dtype),
            "residual of y's shape and type");
    require_slot_weights(weights, y.rows, per_token);
}

inline void require_combine_parts(std::span<const ConstTensor> parts,
                                  std::span<const int32_t> row_of_slot, ConstTensor residual,
                                  ConstTensor y) {
    require(!parts.empty() && parts.size() <= kMostParts, "from 1 to 256 parts");
    require(std::ssize(row_of_slot) == y.rows * std::ssize(parts), "a slot per row and part");
    for (const ConstTensor& part : parts) {
        require(!part || (part.cols == y.cols && part.dtype == y.dtype),
                "parts of y's width and type");
    }
    require(!residual || (same_shape(residual, y) && residual.dtype == y.dtype),
            "residual of y's shape and type");
}

inline void require_row_products(ConstTensor dy, ConstTensor rows,
                                 std::span<const int32_t> slot_of_row, ConstTensor dweights) {
    require(same_shape(dy, rows) && dy.dtype == rows.dtype, "dy of the rows' shape and type");
    require(std::ssize(slot_of_row) == rows.rows, "a slot per row");
    require(dweights.dtype == DType::fp32, "fp32 dweights");
}

inline void require_scale_rows(ConstTensor x, std::span<const int32_t> slot_of_row,
                               ConstTensor weights, ConstTensor y) {
    require(same_shape(x, y) && x.dtype == y.dtype, "y of x's shape and type");
    require(std::ssize(slot_of_row) == x.rows, "a slot per row");
    require((weights || x.rows == 0) && weights.dtype == DType::fp32, "fp32 weights");
}

/// x (R, in) and y (R, `out`): all columns of the product or some of them.
inline void require_grouped_rows(ConstTensor x, ConstTensor w, ConstTensor y, int64_t out,
                                 std::span<const RowRange> rows) {
    require(!rows.empty(), "rows of one expert or more");
    require(x.rows == y.rows, "equally many rows of x and y");
    require(has_shape(w, std::ssize(rows) * out, x.cols), "w (experts out, in)");
    for (const RowRange& of_expert : rows) {
        require(of_expert.first >= 0 && of_expert.first <= of_expert.end && of_expert.end <= x.rows,
                "rows of experts within those of x");
    }
}
/// x (R, in) and y (R, out), or their gradients; w (E out, in) or its gradient.
inline void require_grouped_linear(ConstTensor x, ConstTensor w, ConstTensor y,
                                   std::span<const RowRange> rows) {
    require_grouped_rows(x, w, y, y.cols, rows);
}
/// Columns of each expert's product.
inline int64_t require_grouped_columns(ConstTensor x, ConstTensor w, ConstTensor y,
                                       std::span<const RowRange> rows, int64_t first_column) {
    const int64_t out = rows.empty() ? 0 : w.rows / std::ssize(rows);
    require_grouped_rows(x, w, y, out, rows);
    require(first_column >= 0 && first_column + y.cols <= out, "y of columns of the product");
    return out;
}

}  // namespace vocabpipe::kernels
