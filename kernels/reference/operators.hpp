// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/function_of.hpp"

/// The operators as plain loops in double, for tensors of every DType, fp64 included: the oracle of
/// the tests. Results are rounded to the type of the tensor they go to. Workspaces are not used and
/// may be empty. Operators that compute what others do one after the other are not here.
namespace vocabpipe::kernels::reference {

FunctionOf<&Operators::linear_forward> linear_forward;
FunctionOf<&Operators::linear_backward_input> linear_backward_input;
FunctionOf<&Operators::linear_backward_weight> linear_backward_weight;

FunctionOf<&Operators::layer_norm_forward> layer_norm_forward;
FunctionOf<&Operators::layer_norm_backward_input> layer_norm_backward_input;
FunctionOf<&Operators::layer_norm_backward_weight> layer_norm_backward_weight;
FunctionOf<&Operators::rms_norm_forward> rms_norm_forward;
FunctionOf<&Operators::rms_norm_backward_input> rms_norm_backward_input;
FunctionOf<&Operators::rms_norm_sums> rms_norm_sums;
FunctionOf<&Operators::rms_norm_backward_weight> rms_norm_backward_weight;
FunctionOf<&Operators::head_norm_forward> head_norm_forward;
FunctionOf<&Operators::head_norm_backward_input> head_norm_backward_input;
FunctionOf<&Operators::head_norm_backward_weight> head_norm_backward_weight;

FunctionOf<&Operators::rotary_forward> rotary_forward;
FunctionOf<&Operators::rotary_backward> rotary_backward;
FunctionOf<&Operators::attention_workspace_bytes> attention_workspace_bytes;
FunctionOf<&Operators::causal_attention_forward> causal_attention_forward;
FunctionOf<&Operators::causal_attention_backward> causal_attention_backward;
FunctionOf<&Operators::cached_attention_forward> cached_attention_forward;
FunctionOf<&Operators::logits_forward> logits_forward;

FunctionOf<&Operators::activation_forward> activation_forward;
FunctionOf<&Operators::activation_backward> activation_backward;
FunctionOf<&Operators::gated_forward> gated_forward;
FunctionOf<&Operators::gated_backward> gated_backward;
FunctionOf<&Operators::add> add;
FunctionOf<&Operators::convert> convert;
FunctionOf<&Operators::scale> scale;
FunctionOf<&Operators::ordered_sum> ordered_sum;
FunctionOf<&Operators::fold_partials> fold_partials;

FunctionOf<&Operators::embedding_gather> embedding_gather;
FunctionOf<&Operators::embedding_scatter_add> embedding_scatter_add;
FunctionOf<&Operators::embedding_take> embedding_take;
FunctionOf<&Operators::add_positions> add_positions;
FunctionOf<&Operators::positions_gradient> positions_gradient;

FunctionOf<&Operators::router_forward> router_forward;
FunctionOf<&Operators::router_backward> router_backward;
FunctionOf<&Operators::sort_by_expert> sort_by_expert;
FunctionOf<&Operators::gather_rows> gather_rows;
FunctionOf<&Operators::combine_rows> combine_rows;
FunctionOf<&Operators::combine_parts> combine_parts;
FunctionOf<&Operators::combine_backward_weights> combine_backward_weights;
FunctionOf<&Operators::scale_rows> scale_rows;
FunctionOf<&Operators::grouped_linear_forward> grouped_linear_forward;
FunctionOf<&Operators::grouped_linear_backward_input> grouped_linear_backward_input;
FunctionOf<&Operators::grouped_linear_backward_weight> grouped_linear_backward_weight;

FunctionOf<&Operators::vocabulary_score_workspace_bytes> vocabulary_score_workspace_bytes;
FunctionOf<&Operators::vocabulary_score> vocabulary_score;
FunctionOf<&Operators::vocabulary_input_product> vocabulary_input_product;
FunctionOf<&Operators::combine_statistics> combine_statistics;
FunctionOf<&Operators::vocabulary_input_gradient_workspace_bytes>
    vocabulary_input_gradient_workspace_bytes;
FunctionOf<&Operators::vocabulary_input_gradient> vocabulary_input_gradient;
FunctionOf<&Operators::vocabulary_weight_gradient_workspace_bytes>
    vocabulary_weight_gradient_workspace_bytes;
FunctionOf<&Operators::vocabulary_weight_gradient> vocabulary_weight_gradient;

FunctionOf<&Operators::sum_of_squares> sum_of_squares;
FunctionOf<&Operators::adamw> adamw;

/// The losses that combine_statistics() reports, before they are rounded to float.
void row_losses(Context& ctx, ConstTensor by_shard, std::span<const int32_t> labels,
                const VocabularyShard& mine, const LossOptions& options, std::span<double> loss);

}  // namespace vocabpipe::kernels::reference
