// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/function_of.hpp"

/// The operators on the host: matrix products and vector loops, on the threads of the Context.
/// Every operator is in the file of its name or of its group.
namespace vocabpipe::kernels::host {

FunctionOf<&Operators::linear_forward> linear_forward;
FunctionOf<&Operators::linear_add_forward> linear_add_forward;
FunctionOf<&Operators::linear_gelu_forward> linear_gelu_forward;
FunctionOf<&Operators::linear_backward_input> linear_backward_input;
FunctionOf<&Operators::linear_gelu_backward_input> linear_gelu_backward_input;
FunctionOf<&Operators::linear_backward_weight> linear_backward_weight;

FunctionOf<&Operators::layer_norm_forward> layer_norm_forward;
FunctionOf<&Operators::layer_norm_backward_input> layer_norm_backward_input;
FunctionOf<&Operators::layer_norm_backward_weight> layer_norm_backward_weight;
FunctionOf<&Operators::layer_norm_backward> layer_norm_backward;
FunctionOf<&Operators::rms_norm_forward> rms_norm_forward;
FunctionOf<&Operators::rms_norm_backward_input> rms_norm_backward_input;
FunctionOf<&Operators::rms_norm_sums> rms_norm_sums;
FunctionOf<&Operators::rms_norm_backward_weight> rms_norm_backward_weight;
FunctionOf<&Operators::rms_norm_backward> rms_norm_backward;
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
FunctionOf<&Operators::set_zero> set_zero;
FunctionOf<&Operators::copy> copy;

FunctionOf<&Operators::embedding_gather> embedding_gather;
FunctionOf<&Operators::embedding_scatter_add> embedding_scatter_add;
FunctionOf<&Operators::embedding_take> embedding_take;
FunctionOf<&Operators::add_positions> add_positions;
FunctionOf<&Operators::positions_gradient> positions_gradient;

FunctionOf<&Operators::router_forward> router_forward;
FunctionOf<&Operators::router_backward> router_backward;
FunctionOf<&Operators::sum_routing> sum_routing;
FunctionOf<&Operators::sort_by_expert> sort_by_expert;
FunctionOf<&Operators::read_to_host> read_to_host;
FunctionOf<&Operators::write_from_host> write_from_host;
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

FunctionOf<&Operators::weighted_sum> weighted_sum;
FunctionOf<&Operators::add_up> add_up;
FunctionOf<&Operators::sum_of_squares> sum_of_squares;
FunctionOf<&Operators::finish_report> finish_report;
FunctionOf<&Operators::sum_reports> sum_reports;
FunctionOf<&Operators::update_correction_bias> update_correction_bias;
FunctionOf<&Operators::adamw> adamw;

/// Elements of one block of sum_of_squares(), counted in row-major order: a fixed tree of double
/// lanes inside, then the blocks in order. Parts of a tensor that start and end at multiples of it,
/// or at the end, have the same block sums as the whole.
inline constexpr int64_t kSquaresBlock = 4096;

/// All of them.
[[nodiscard]] const Operators& operators();

}  // namespace vocabpipe::kernels::host
