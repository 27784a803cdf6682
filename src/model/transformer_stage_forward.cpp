// SPDX-License-Identifier: Apache-2.0
// F and R of a stage.
#include "src/model/transformer_stage.hpp"

namespace vocabpipe {

namespace {

ConstTensor weight_of(const Parameter* parameter) {
    return parameter != nullptr ? ConstTensor(parameter->weight) : ConstTensor();
}

}  // namespace

void TransformerStage::forward(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
                               Activations activations, Bytes workspace) {
    Views memory(workspace);
    run(ctx, microbatch, x, y, saved_views(activations), scratch_views(memory));
}

void TransformerStage::recompute(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                                 Activations activations, Bytes workspace) {
    const Layers layers = saved_views(activations);
    if (options_.recompute == Recompute::full) {
        Views memory(workspace);
        run(ctx, microbatch, x, {}, layers, scratch_views(memory));
    } else if (options_.recompute == Recompute::selective) {
        for (int i = 0; i < options_.layers.count; ++i) {
            if (i > 0) ctx.poll();
            layer_recompute(ctx, i, layer_input(i, x, layers),
                            layers.layers[static_cast<size_t>(i)]);
        }
    }
}

void TransformerStage::run(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
                           const Layers& saved, const Scratch& scratch) {
    const kernels::Operators& op = ctx.operators();
    const StageLayers& of = options_.layers;
    // Where each layer's output goes: the next layer's input, the final norm's input, or y.
    const auto input_of = [&](int layer) {
        if (layer < of.count) return saved.layers[static_cast<size_t>(layer)].x;
        return of.final_norm ? saved.final_input : y;
    };
    if (of.embedding && input_of(0)) {
        if (positions_ != nullptr) {
            op.add_positions(ctx, x, positions_->weight, microbatch.seq_length, input_of(0));
        } else {
            op.scale(ctx, x, embedding_scale_, input_of(0));
        }
        x = input_of(0);
    } else if (of.count == 0 && !of.final_norm && y) {
        op.convert(ctx, x, y);
    }
    for (int i = 0; i < of.count; ++i) {
        if (i > 0) ctx.poll();
        layer_forward(ctx, microbatch, i, x, saved.layers[static_cast<size_t>(i)], input_of(i + 1),
                      scratch);
        x = input_of(i + 1);
    }
    if (of.final_norm) {
        const Tensor out = y ? y : narrowed(scratch.rows, config_.hidden_size);
        norm_forward(ctx, x, final_norm_, {}, out, saved.final_stats);
    }
}

/// From the product to what attention reads.
void TransformerStage::qkv_to_attention(Context& ctx, int layer, const LayerSaved& saved) {
    const kernels::Operators& op = ctx.operators();
    const LayerWeights& w = layers_[static_cast<size_t>(layer)];
    const kernels::AttentionShape shape = attention_of(layer);
    if (config_.qk_norm) {
        op.head_norm_forward(ctx, saved.qkv_before, w.q_norm->weight, w.k_norm->weight, rms_norm(),
                             shape, saved.qkv, saved.qk_stats);
    }
    if (rotary_) op.rotary_forward(ctx, rotary_, shape, saved.qkv);
}

void TransformerStage::layer_forward(Context& ctx, const Microbatch& microbatch, int layer,
                                     ConstTensor x, const LayerSaved& saved, Tensor out,
                                     const Scratch& scratch) {
    const kernels::Operators& op = ctx.operators();
    const LayerWeights& w = layers_[static_cast<size_t>(layer)];
    const Tensor sum = narrowed(scratch.rows, config_.hidden_size);
    const auto linear = [&](ConstTensor in, const Weights& of, Tensor to) {
        op.linear_forward(ctx, in, of.weight->weight, weight_of(of.bias), to);
    };
    const auto linear_add = [&](ConstTensor in, const Weights& of, ConstTensor residual,
                                Tensor to) {
        op.linear_add_forward(ctx, in, of.weight->weight, weight_of(of.bias), residual, sum, to);
    };

    norm_forward(ctx, x, w.attention_norm, {}, saved.attention_norm, saved.attention_norm_stats);
    linear(saved.attention_norm, w.qkv, config_.qk_norm ? saved.qkv_before : saved.qkv);
    qkv_to_attention(ctx, layer, saved);
    op.causal_attention_forward(ctx, saved.qkv, attention_of(layer), microbatch.first_visible,
                                saved.attention, saved.lse, scratch.attention);
    if (config_.post_norms) {
        linear(saved.attention, w.proj, saved.proj);
        norm_forward(ctx, saved.proj, w.post_attention_norm, x, saved.x_mid,
                     saved.post_attention_stats);
    } else {
        linear_add(saved.attention, w.proj, x, saved.x_mid);
    }
    norm_forward(ctx, saved.x_mid, w.mlp_norm, {}, saved.mlp_norm, saved.mlp_norm_stats);
    if (config_.gated) {
        linear(saved.mlp_norm, w.fc, saved.fc);
        op.gated_forward(ctx, config_.activation, saved.fc, saved.act);
    } else if (options_.recompute == Recompute::selective) {
        // As layer_recompute() will: GELU within the product may round differently.
        linear(saved.mlp_norm, w.fc, saved.fc);
        op.gelu_forward(ctx, saved.fc, saved.act);
    } else {
        op.linear_gelu_forward(ctx, saved.mlp_norm, w.fc.weight->weight, weight_of(w.fc.bias),
                               saved.fc, saved.act);
    }
    if (config_.post_norms) {
        linear(saved.act, w.fc_proj, saved.fc_proj);
        norm_forward(ctx, saved.fc_proj, w.post_mlp_norm, saved.x_mid, out ? out : sum,
                     saved.post_mlp_stats);
    } else if (out) {
        linear_add(saved.act, w.fc_proj, saved.x_mid, out);
    }
}

/// Selective: norms and activations, by the operators that made them.
void TransformerStage::layer_recompute(Context& ctx, int layer, ConstTensor x,
                                       const LayerSaved& saved) {
    const kernels::Operators& op = ctx.operators();
    const LayerWeights& w = layers_[static_cast<size_t>(layer)];
    norm_forward(ctx, x, w.attention_norm, {}, saved.attention_norm, saved.attention_norm_stats);
    if (config_.qk_norm) qkv_to_attention(ctx, layer, saved);
    norm_forward(ctx, saved.x_mid, w.mlp_norm, {}, saved.mlp_norm, saved.mlp_norm_stats);
    if (config_.gated) {
        op.gated_forward(ctx, config_.activation, saved.fc, saved.act);
    } else {
        op.gelu_forward(ctx, saved.fc, saved.act);
    }
}

kernels::RmsNormOptions TransformerStage::rms_norm() const {
    return {.epsilon = config_.norm_epsilon, .weight_offset = config_.norm_weight_offset};
}

void TransformerStage::norm_forward(Context& ctx, ConstTensor x, const Weights& norm,
                                    ConstTensor residual, Tensor y, Statistics statistics) const {
    if (config_.normalization == Normalization::rms_norm) {
        ctx.operators().rms_norm_forward(ctx, x, norm.weight->weight, rms_norm(), residual, y,
                                         statistics);
    } else {
        ctx.operators().layer_norm_forward(ctx, x, norm.weight->weight, norm.bias->weight,
                                           config_.norm_epsilon, y, statistics);
    }
}

}  // namespace vocabpipe
