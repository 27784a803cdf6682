// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

namespace vocabpipe::kernels::cuda {

#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wmissing-field-initializers"  // an entry left out would be null

const Operators& operators() {
    static constexpr Operators kTable{
        .linear_forward = linear_forward,
        .linear_add_forward = linear_add_forward,
        .linear_gelu_forward = linear_gelu_forward,
        .linear_backward_input = linear_backward_input,
        .linear_gelu_backward_input = linear_gelu_backward_input,
        .linear_backward_weight = linear_backward_weight,
        .layer_norm_forward = layer_norm_forward,
        .layer_norm_backward_input = layer_norm_backward_input,
        .layer_norm_backward_weight = layer_norm_backward_weight,
        .layer_norm_backward = layer_norm_backward,
        .rms_norm_forward = rms_norm_forward,
        .rms_norm_backward_input = rms_norm_backward_input,
        .rms_norm_sums = rms_norm_sums,
        .rms_norm_backward_weight = rms_norm_backward_weight,
        .rms_norm_backward = rms_norm_backward,
        .head_norm_forward = head_norm_forward,
        .head_norm_backward_input = head_norm_backward_input,
        .head_norm_backward_weight = head_norm_backward_weight,
        .rotary_forward = rotary_forward,
        .rotary_backward = rotary_backward,
        .attention_workspace_bytes = attention_workspace_bytes,
        .causal_attention_forward = causal_attention_forward,
        .causal_attention_backward = causal_attention_backward,
        .cached_attention_forward = cached_attention_forward,
        .logits_forward = logits_forward,
        .activation_forward = activation_forward,
        .activation_backward = activation_backward,
        .gated_forward = gated_forward,
        .gated_backward = gated_backward,
        .add = add,
        .convert = convert,
        .scale = scale,
        .ordered_sum = ordered_sum,
        .fold_partials = fold_partials,
        .set_zero = set_zero,
        .copy = copy,
        .embedding_gather = embedding_gather,
        .embedding_scatter_add = embedding_scatter_add,
        .embedding_take = embedding_take,
        .add_positions = add_positions,
        .positions_gradient = positions_gradient,
        .router_forward = router_forward,
        .router_backward = router_backward,
        .sum_routing = sum_routing,
        .sort_by_expert = sort_by_expert,
        .read_to_host = read_to_host,
        .write_from_host = write_from_host,
        .gather_rows = gather_rows,
        .combine_rows = combine_rows,
        .combine_parts = combine_parts,
        .combine_backward_weights = combine_backward_weights,
        .scale_rows = scale_rows,
        .grouped_linear_forward = grouped_linear_forward,
        .grouped_linear_backward_input = grouped_linear_backward_input,
        .grouped_linear_backward_weight = grouped_linear_backward_weight,
        .vocabulary_score_workspace_bytes = vocabulary_score_workspace_bytes,
        .vocabulary_score = vocabulary_score,
        .vocabulary_input_product = vocabulary_input_product,
        .combine_statistics = combine_statistics,
        .vocabulary_input_gradient_workspace_bytes = vocabulary_input_gradient_workspace_bytes,
        .vocabulary_input_gradient = vocabulary_input_gradient,
        .vocabulary_weight_gradient_workspace_bytes = vocabulary_weight_gradient_workspace_bytes,
        .vocabulary_weight_gradient = vocabulary_weight_gradient,
        .weighted_sum = weighted_sum,
        .add_up = add_up,
        .sum_of_squares = sum_of_squares,
        .finish_report = finish_report,
        .sum_reports = sum_reports,
        .update_correction_bias = update_correction_bias,
        .adamw = adamw,
    };
    return kTable;
}

#pragma GCC diagnostic pop

}  // namespace vocabpipe::kernels::cuda
