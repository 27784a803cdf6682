// SPDX-License-Identifier: Apache-2.0
// The operations that a LayerGraph offers.
#pragma once

#include "src/model/blocks/graph/operation.hpp"
#include "src/model/blocks/linear.hpp"
#include "src/model/blocks/norm.hpp"
#include "src/model/blocks/qk_norm.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/activation.hpp"
#include "vocabpipe/attention_shape.hpp"
#include "vocabpipe/layer_graph.hpp"
#include "vocabpipe/rope.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

[[nodiscard]] std::unique_ptr<Operation> linear_operation(const LinearOptions& options,
                                                          ParameterSource& parameters);
/// `hidden_size`: h; norms of rows of h columns belong to the residual stream.
[[nodiscard]] std::unique_ptr<Operation> norm_operation(const NormOptions& options,
                                                        int64_t hidden_size,
                                                        ParameterSource& parameters);

/// Heads of attention, and the rows of the sequences that they see.
struct SequenceShape {
    kernels::AttentionShape shape;
    int64_t rows = 0;  ///< of a sequence; 0: its tokens

    [[nodiscard]] kernels::AttentionShape in_pass(const StagePass& pass) const;
    [[nodiscard]] kernels::AttentionShape in_use(const ScratchFor& use) const;
};

/// Norms by head.
[[nodiscard]] std::unique_ptr<Operation> head_norm_operation(const QkNormOptions& options,
                                                             const SequenceShape& shape,
                                                             ParameterSource& parameters);
/// `rotary_size`: columns of a head that are rotated.
[[nodiscard]] std::unique_ptr<Operation> rotary_operation(const Rope& rope, int64_t rotary_size,
                                                          const SequenceShape& shape);
[[nodiscard]] std::unique_ptr<Operation> attention_operation(const SequenceShape& shape);
/// Attention of q, `queries` rows in a sequence, to k | v, of which there are `shape.rows`.
[[nodiscard]] std::unique_ptr<Operation> cross_attention_operation(const SequenceShape& shape,
                                                                   int64_t queries);

/// `columns`: of the result; `gated`: of gate | up.
[[nodiscard]] std::unique_ptr<Operation> activation_operation(kernels::Activation activation,
                                                              bool gated, int64_t columns);
[[nodiscard]] std::unique_ptr<Operation> sum_operation(int64_t columns, int64_t hidden_size);
[[nodiscard]] std::unique_ptr<Operation> scale_operation(float factor, int64_t columns);

// Operations on the rows of a model; `rows`: in a sequence.

/// Position t of every sequence gets row t of a trained weight.
[[nodiscard]] std::unique_ptr<Operation> positions_operation(const std::string& name, int64_t rows,
                                                             int64_t columns, float init_std,
                                                             ParameterSource& parameters);
/// The same elements in rows of another length.
[[nodiscard]] std::unique_ptr<Operation> reshape_operation(int64_t columns);
/// `count` rows of every sequence from row `first` on.
[[nodiscard]] std::unique_ptr<Operation> row_range_operation(int64_t rows, int64_t columns,
                                                             int64_t first, int64_t count);
/// The rows of b behind those of a, in every sequence.
[[nodiscard]] std::unique_ptr<Operation> joined_rows_operation(int64_t rows_of_a, int64_t rows_of_b,
                                                               int64_t columns);
[[nodiscard]] std::unique_ptr<Operation> column_range_operation(int64_t first, int64_t count);
[[nodiscard]] std::unique_ptr<Operation> joined_columns_operation(std::vector<int64_t> columns);
[[nodiscard]] std::unique_ptr<Operation> mean_rows_operation(int64_t rows, int64_t columns);
/// Microbatch::columns as rows.
[[nodiscard]] std::unique_ptr<Operation> data_columns_operation(int64_t first, int64_t count);

/// Columns of the data, one after the other. Throws UsageError where a microbatch has fewer.
[[nodiscard]] std::span<const float> columns_of_data(const StagePass& pass, int64_t first,
                                                     int64_t count);

// Losses of rows; `rows`: in a sequence.

[[nodiscard]] std::unique_ptr<Operation> cross_entropy_operation(int64_t rows, int64_t columns);
[[nodiscard]] std::unique_ptr<Operation> squared_error_operation(int64_t rows, int64_t columns,
                                                                 int64_t first_target);
/// Keeps what it reads in StagePass::results.
[[nodiscard]] std::unique_ptr<Operation> result_operation(const std::string& name, int64_t columns);
/// The sum of what it reads.
[[nodiscard]] std::unique_ptr<Operation> own_loss_operation(int64_t rows);

/// An operator of the user, with whole names of its weights. `inputs`: columns of each.
[[nodiscard]] std::unique_ptr<Operation> own_operation(const LayerOperator& made,
                                                       const std::vector<int64_t>& inputs,
                                                       ParameterSource& parameters);

}  // namespace vocabpipe
