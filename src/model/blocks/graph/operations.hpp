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
#include <vector>

namespace vocabpipe {

[[nodiscard]] std::unique_ptr<Operation> linear_operation(const LinearOptions& options,
                                                          ParameterSource& parameters);
/// `hidden_size`: h; norms of rows of h columns belong to the residual stream.
[[nodiscard]] std::unique_ptr<Operation> norm_operation(const NormOptions& options,
                                                        int64_t hidden_size,
                                                        ParameterSource& parameters);

/// Norms by head.
[[nodiscard]] std::unique_ptr<Operation> head_norm_operation(const QkNormOptions& options,
                                                             const kernels::AttentionShape& shape,
                                                             ParameterSource& parameters);
/// `rotary_size`: columns of a head that are rotated.
[[nodiscard]] std::unique_ptr<Operation> rotary_operation(const Rope& rope, int64_t rotary_size,
                                                          const kernels::AttentionShape& shape);
[[nodiscard]] std::unique_ptr<Operation> attention_operation(const kernels::AttentionShape& shape);

/// `columns`: of the result; `gated`: of gate | up.
[[nodiscard]] std::unique_ptr<Operation> activation_operation(kernels::Activation activation,
                                                              bool gated, int64_t columns);
[[nodiscard]] std::unique_ptr<Operation> sum_operation(int64_t columns, int64_t hidden_size);
[[nodiscard]] std::unique_ptr<Operation> scale_operation(float factor, int64_t columns);

/// An operator of the user, with whole names of its weights. `inputs`: columns of each.
[[nodiscard]] std::unique_ptr<Operation> own_operation(const LayerOperator& made,
                                                       const std::vector<int64_t>& inputs,
                                                       ParameterSource& parameters);

}  // namespace vocabpipe
