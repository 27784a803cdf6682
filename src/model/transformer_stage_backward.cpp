// SPDX-License-Identifier: Apache-2.0
// B, I and W of a stage.
#include "src/model/transformer_stage.hpp"

#include <utility>

namespace vocabpipe {

namespace {

Tensor gradient_of(const Parameter* parameter) {
    return parameter != nullptr ? parameter->gradient : Tensor();
}

}  // namespace

void TransformerStage::layer_backward_input(Context& ctx, const Microbatch& microbatch, int layer,
                                            ConstTensor dy, ConstTensor x, const LayerSaved& saved,
                                            const LayerGradients& gradients, Tensor dx,
                                            const Scratch& scratch, OfNorms of_norms) {
    const kernels::Operators& op = ctx.operators();
    const LayerWeights& w = layers_[static_cast<size_t>(layer)];
    const kernels::AttentionShape shape = attention_of(layer);
    const auto through = [&](ConstTensor gradient, const Weights& linear, Tensor to) {
        op.linear_backward_input(ctx, gradient, linear.weight->weight, to);
    };

    ConstTensor d_fc_proj = dy;
    if (config_.post_norms) {
        norm_backward(ctx, dy, saved.fc_proj, w.post_mlp_norm, saved.post_mlp_stats, {},
                      gradients.fc_proj, of_norms);
        d_fc_proj = gradients.fc_proj;
    }
    if (config_.gated) {
        const Tensor d_act = narrowed(scratch.rows, config_.ffn_hidden_size);
        through(d_fc_proj, w.fc_proj, d_act);
        op.gated_backward(ctx, config_.activation, d_act, saved.fc, gradients.fc);
    } else {
        op.linear_gelu_backward_input(ctx, d_fc_proj, w.fc_proj.weight->weight, saved.fc,
                                      gradients.fc);
    }
    through(gradients.fc, w.fc, gradients.mlp_norm);
    norm_backward(ctx, gradients.mlp_norm, saved.x_mid, w.mlp_norm, saved.mlp_norm_stats, dy,
                  gradients.x_mid, of_norms);

    ConstTensor d_proj = gradients.x_mid;
    if (config_.post_norms) {
        norm_backward(ctx, gradients.x_mid, saved.proj, w.post_attention_norm,
                      saved.post_attention_stats, {}, gradients.proj, of_norms);
        d_proj = gradients.proj;
    }
    const Tensor d_attention = narrowed(scratch.rows, config_.query_columns());
    through(d_proj, w.proj, d_attention);
    const Tensor d_qkv = config_.qk_norm ? gradients.qkv_normed : gradients.qkv;
    op.causal_attention_backward(ctx, d_attention, saved.qkv, saved.attention, saved.lse, shape,
                                 microbatch.first_visible, d_qkv, scratch.attention);
    if (rotary_) op.rotary_backward(ctx, rotary_, shape, d_qkv);
    if (config_.qk_norm) {
        op.head_norm_backward_input(ctx, d_qkv, saved.qkv_before, w.q_norm->weight,
                                    w.k_norm->weight, rms_norm(), saved.qk_stats, shape,
                                    gradients.qkv);
    }
    through(gradients.qkv, w.qkv, gradients.attention_norm);
    norm_backward(ctx, gradients.attention_norm, x, w.attention_norm, saved.attention_norm_stats,
                  gradients.x_mid, dx, of_norms);
}

void TransformerStage::layer_backward_weight(Context& ctx, int layer, ConstTensor dy, ConstTensor x,
                                             const LayerSaved& saved,
                                             const LayerGradients& gradients, bool accumulate,
                                             bool norms) {
    const kernels::Operators& op = ctx.operators();
    const LayerWeights& w = layers_[static_cast<size_t>(layer)];
    const auto linear = [&](ConstTensor gradient, ConstTensor input, const Weights& of) {
        op.linear_backward_weight(ctx, gradient, input, of.weight->gradient, gradient_of(of.bias),
                                  accumulate);
    };
    const auto norm = [&](ConstTensor gradient, ConstTensor input, Statistics statistics,
                          const Weights& of) {
        if (norms) norm_backward_weight(ctx, gradient, input, of, statistics, accumulate);
    };
    if (config_.post_norms) {
        norm(dy, saved.fc_proj, saved.post_mlp_stats, w.post_mlp_norm);
        norm(gradients.x_mid, saved.proj, saved.post_attention_stats, w.post_attention_norm);
    }
    linear(config_.post_norms ? ConstTensor(gradients.fc_proj) : dy, saved.act, w.fc_proj);
    linear(gradients.fc, saved.mlp_norm, w.fc);
    norm(gradients.mlp_norm, saved.x_mid, saved.mlp_norm_stats, w.mlp_norm);
    linear(config_.post_norms ? gradients.proj : gradients.x_mid, saved.attention, w.proj);
    if (config_.qk_norm) {
        op.head_norm_backward_weight(ctx, gradients.qkv_normed, saved.qkv_before, saved.qk_stats,
                                     attention_of(layer), w.q_norm->gradient, w.k_norm->gradient,
                                     accumulate);
    }
    linear(gradients.qkv, saved.attention_norm, w.qkv);
    norm(gradients.attention_norm, x, saved.attention_norm_stats, w.attention_norm);
}

void TransformerStage::backward(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                                ConstTensor x, Activations activations, Tensor dx, Bytes workspace,
                                bool accumulate) {
    const kernels::Operators& op = ctx.operators();
    const int count = options_.layers.count;
    const Layers saved = saved_views(activations);
    Views memory(workspace);
    const LayerGradients gradients = gradient_views(memory);
    Tensor next = hidden(memory);
    Tensor other = hidden(memory);
    const Scratch scratch = scratch_views(memory);
    const OfNorms of_norms = accumulate ? OfNorms::added : OfNorms::overwritten;

    if (options_.layers.final_norm) {
        const ConstTensor input = final_input(x, saved);
        const Tensor out = count == 0 ? dx : next;
        norm_backward(ctx, dy, input, final_norm_, saved.final_stats, {}, out, of_norms);
        dy = out;
        std::swap(next, other);
    } else if (count == 0) {
        op.convert(ctx, dy, dx);
    }
    for (int i = count - 1; i >= 0; --i) {
        if (i < count - 1) ctx.poll();
        const LayerSaved& layer = saved.layers[static_cast<size_t>(i)];
        const ConstTensor input = layer_input(i, x, saved);
        const Tensor out = i == 0 ? dx : next;
        layer_backward_input(ctx, microbatch, i, dy, input, layer, gradients, out, scratch,
                             of_norms);
        layer_backward_weight(ctx, i, dy, input, layer, gradients, accumulate, false);
        dy = out;
        std::swap(next, other);
    }
    embedding_backward_weight(ctx, microbatch, dx, accumulate);
    embedding_backward_input(ctx, dx);
}

void TransformerStage::backward_input(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                                      ConstTensor x, Activations activations, Tensor dx,
                                      Bytes for_weight, Bytes workspace) {
    const kernels::Operators& op = ctx.operators();
    const int count = options_.layers.count;
    const Layers saved = saved_views(activations);
    Views weight_memory(for_weight);
    const ForWeight left = weight_views(weight_memory);
    Views memory(workspace);
    const Scratch scratch = scratch_views(memory);

    op.convert(ctx, dy, left.stage_dy);
    const Tensor first = count == 0 ? dx : left.layer_dy.back();
    if (options_.layers.final_norm) {
        norm_backward(ctx, dy, final_input(x, saved), final_norm_, saved.final_stats, {}, first,
                      OfNorms::left_for_weight);
    } else {
        op.convert(ctx, dy, first);
    }
    for (int i = count - 1; i >= 0; --i) {
        if (i < count - 1) ctx.poll();
        const auto at = static_cast<size_t>(i);
        layer_backward_input(ctx, microbatch, i, left.layer_dy[at], layer_input(i, x, saved),
                             saved.layers[at], left.gradients[at],
                             i == 0 ? dx : left.layer_dy[at - 1], scratch,
                             OfNorms::left_for_weight);
    }
    op.convert(ctx, dx, left.stage_dx);
    embedding_backward_input(ctx, dx);
}

void TransformerStage::backward_weight(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                                       Activations activations, Bytes for_weight, Bytes,
                                       bool accumulate) {
    const Layers saved = saved_views(activations);
    Views weight_memory(for_weight);
    const ForWeight left = weight_views(weight_memory);

    if (options_.layers.final_norm) {
        norm_backward_weight(ctx, left.stage_dy, final_input(x, saved), final_norm_,
                             saved.final_stats, accumulate);
    }
    for (int i = options_.layers.count - 1; i >= 0; --i) {
        if (i < options_.layers.count - 1) ctx.poll();
        const auto at = static_cast<size_t>(i);
        layer_backward_weight(ctx, i, left.layer_dy[at], layer_input(i, x, saved), saved.layers[at],
                              left.gradients[at], accumulate, true);
    }
    embedding_backward_weight(ctx, microbatch, left.stage_dx, accumulate);
}

/// dx: of what the first layer reads; becomes that of the embedded tokens.
void TransformerStage::embedding_backward_input(Context& ctx, Tensor dx) const {
    if (options_.layers.embedding && positions_ == nullptr) {
        ctx.operators().scale(ctx, dx, embedding_scale_, dx);
    }
}

void TransformerStage::embedding_backward_weight(Context& ctx, const Microbatch& microbatch,
                                                 ConstTensor dx, bool accumulate) const {
    if (positions_ == nullptr) return;
    ctx.operators().positions_gradient(ctx, dx, microbatch.seq_length, positions_->gradient,
                                       accumulate);
}

void TransformerStage::norm_backward(Context& ctx, ConstTensor dy, ConstTensor x,
                                     const Weights& norm, Statistics statistics,
                                     ConstTensor residual, Tensor dx, OfNorms of_norms) const {
    const kernels::Operators& op = ctx.operators();
    const ConstTensor gamma = norm.weight->weight;
    const bool alone = of_norms == OfNorms::left_for_weight;
    const bool add = of_norms == OfNorms::added;
    if (config_.normalization == Normalization::rms_norm) {
        if (alone) {
            op.rms_norm_backward_input(ctx, dy, x, gamma, rms_norm(), statistics, residual, dx);
        } else {
            op.rms_norm_backward(ctx, dy, x, gamma, rms_norm(), statistics, residual, dx,
                                 norm.weight->gradient, add);
        }
    } else if (alone) {
        op.layer_norm_backward_input(ctx, dy, x, gamma, statistics, residual, dx);
    } else {
        op.layer_norm_backward(ctx, dy, x, gamma, statistics, residual, dx, norm.weight->gradient,
                               norm.bias->gradient, add);
    }
}

void TransformerStage::norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x,
                                            const Weights& norm, Statistics statistics,
                                            bool accumulate) const {
    if (config_.normalization == Normalization::rms_norm) {
        ctx.operators().rms_norm_backward_weight(ctx, dy, x, statistics, norm.weight->gradient,
                                                 accumulate);
    } else {
        ctx.operators().layer_norm_backward_weight(ctx, dy, x, statistics, norm.weight->gradient,
                                                   norm.bias->gradient, accumulate);
    }
}

}  // namespace vocabpipe
