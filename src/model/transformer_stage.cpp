// SPDX-License-Identifier: Apache-2.0
#include "src/model/transformer_stage.hpp"

#include "kernels/bf16.hpp"
#include "kernels/operators.hpp"
#include "src/model/parameters.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

/// A stage's parameters, in the order of the model's.
std::vector<ParameterRows> rows_of_stage(const ModelParameters& model, const StageLayers& layers) {
    std::vector<ParameterRows> rows;
    int layer = ParameterRows::kNoLayer;
    const auto add = [&](int id) {
        if (id == kNoParameter) return;
        rows.push_back({.id = id, .rows = model.all[static_cast<size_t>(id)].rows, .layer = layer});
    };
    const auto add_both = [&](const WeightAndBias& both) {
        add(both.weight);
        add(both.bias);
    };
    for (layer = layers.first; layer < layers.first + layers.count; ++layer) {
        const LayerParameters& of = model.layers[static_cast<size_t>(layer)];
        add_both(of.attention_norm);
        add_both(of.qkv);
        add(of.q_norm);
        add(of.k_norm);
        add_both(of.proj);
        add_both(of.post_attention_norm);
        add_both(of.mlp_norm);
        add_both(of.fc);
        add_both(of.fc_proj);
        add_both(of.post_mlp_norm);
    }
    layer = ParameterRows::kNoLayer;
    if (layers.embedding) add(model.positions);
    layer = static_cast<int>(model.layers.size());
    if (layers.final_norm) add_both(model.final_norm);
    return rows;
}

ConstTensor weight_of(const Parameter* parameter) {
    return parameter != nullptr ? ConstTensor(parameter->weight) : ConstTensor();
}
Tensor gradient_of(const Parameter* parameter) {
    return parameter != nullptr ? parameter->gradient : Tensor();
}

}  // namespace

std::vector<ParameterRows> stage_parameters(const ModelConfig& config, const StageLayers& layers) {
    return rows_of_stage(model_parameters(config), layers);
}

TransformerStage::TransformerStage(const ModelConfig& config, const StageOptions& options,
                                   const kernels::Operators& operators,
                                   std::span<Parameter> parameters, ConstTensor rotary)
    : config_(config),
      options_(options),
      tokens_(options.sequences * config.seq_length),
      // Rounded as Gemma's own code rounds it.
      embedding_scale_(config.dtype == DType::bf16
                           ? kernels::to_float(kernels::to_bf16(config.embedding_scale))
                           : config.embedding_scale),
      parameters_(parameters),
      rotary_(rotary) {
    for (int i = 0; i < options.layers.count; ++i) {
        attention_bytes_ = std::max(
            attention_bytes_,
            operators.attention_workspace_bytes(attention_of(i), config.dtype, options.threads));
    }
    if (parameters.empty()) return;
    const ModelParameters model = model_parameters(config);
    const std::vector<ParameterRows> rows = rows_of_stage(model, options.layers);
    const auto find = [&](int id) -> Parameter* {
        const auto at = std::ranges::find(rows, id, &ParameterRows::id);
        return id == kNoParameter || at == rows.end()
                   ? nullptr
                   : &parameters[static_cast<size_t>(at - rows.begin())];
    };
    const auto both = [&](const WeightAndBias& of) {
        return Weights{.weight = find(of.weight), .bias = find(of.bias)};
    };
    for (int i = 0; i < options.layers.count; ++i) {
        const LayerParameters& of = model.layers[static_cast<size_t>(options.layers.first + i)];
        layers_.push_back({.attention_norm = both(of.attention_norm),
                           .qkv = both(of.qkv),
                           .proj = both(of.proj),
                           .post_attention_norm = both(of.post_attention_norm),
                           .mlp_norm = both(of.mlp_norm),
                           .fc = both(of.fc),
                           .fc_proj = both(of.fc_proj),
                           .post_mlp_norm = both(of.post_mlp_norm),
                           .q_norm = find(of.q_norm),
                           .k_norm = find(of.k_norm)});
    }
    final_norm_ = both(model.final_norm);
    positions_ = find(model.positions);
}

kernels::AttentionShape TransformerStage::attention_of(int layer) const {
    return {.sequences = options_.sequences,
            .seq_length = config_.seq_length,
            .heads = config_.num_attention_heads,
            .head_size = config_.head_size(),
            .kv_heads = config_.kv_heads(),
            .scale = config_.attention_scale,
            .softcap = config_.attention_softcap,
            .window = config_.window(options_.layers.first + layer)};
}

// --- layouts

Tensor TransformerStage::hidden(Views& views) const {
    return views.take(tokens_, config_.hidden_size, config_.dtype);
}

Tensor TransformerStage::narrowed(Tensor rows, int64_t cols) const {
    return {rows.data, rows.rows, cols, rows.dtype};  // dense
}

TransformerStage::Layers TransformerStage::saved_views(Views& saved_memory,
                                                       Views& recomputed_memory) const {
    const DType type = config_.dtype;
    const int64_t h = config_.hidden_size;
    const int64_t norm_stats = config_.normalization == Normalization::layer_norm ? 2 : 1;
    Views& costly = options_.recompute == Recompute::full ? recomputed_memory : saved_memory;
    Views& cheap = options_.recompute == Recompute::none ? saved_memory : recomputed_memory;
    const auto stats = [&](Views& views, int64_t cols) {
        return views.take(tokens_, cols, DType::fp32);
    };
    const StageLayers& of = options_.layers;
    Layers saved;
    for (int i = 0; i < of.count; ++i) {
        LayerSaved layer;
        if (i > 0 || of.embedding) layer.x = costly.take(tokens_, h, type);
        layer.attention_norm_stats = stats(cheap, norm_stats);
        layer.attention_norm = cheap.take(tokens_, h, type);
        if (config_.qk_norm) {
            layer.qkv_before = costly.take(tokens_, config_.qkv_columns(), type);
            layer.qk_stats = stats(cheap, config_.num_attention_heads + config_.kv_heads());
        }
        layer.qkv = (config_.qk_norm ? cheap : costly).take(tokens_, config_.qkv_columns(), type);
        layer.lse = stats(costly, config_.num_attention_heads);
        layer.attention = costly.take(tokens_, config_.query_columns(), type);
        if (config_.post_norms) {
            layer.proj = costly.take(tokens_, h, type);
            layer.post_attention_stats = stats(costly, norm_stats);
        }
        layer.x_mid = costly.take(tokens_, h, type);
        layer.mlp_norm_stats = stats(cheap, norm_stats);
        layer.mlp_norm = cheap.take(tokens_, h, type);
        layer.fc = costly.take(tokens_, config_.mlp_columns(), type);
        layer.act = cheap.take(tokens_, config_.ffn_hidden_size, type);
        if (config_.post_norms) {
            layer.fc_proj = costly.take(tokens_, h, type);
            layer.post_mlp_stats = stats(costly, norm_stats);
        }
        saved.layers.push_back(layer);
    }
    if (of.final_norm) {
        if (of.count > 0 || of.embedding) saved.final_input = costly.take(tokens_, h, type);
        saved.final_stats = stats(costly, norm_stats);
    }
    return saved;
}

TransformerStage::Layers TransformerStage::saved_views(Activations activations) const {
    Views saved(activations.saved);
    Views recomputed(activations.recomputed);
    return saved_views(saved, recomputed);
}

TransformerStage::LayerGradients TransformerStage::gradient_views(Views& views) const {
    const auto qkv = [&] { return views.take(tokens_, config_.qkv_columns(), config_.dtype); };
    LayerGradients gradients;
    gradients.qkv = qkv();
    if (config_.qk_norm) gradients.qkv_normed = qkv();
    gradients.attention_norm = hidden(views);
    if (config_.post_norms) gradients.proj = hidden(views);
    gradients.x_mid = hidden(views);
    gradients.mlp_norm = hidden(views);
    gradients.fc = views.take(tokens_, config_.mlp_columns(), config_.dtype);
    if (config_.post_norms) gradients.fc_proj = hidden(views);
    return gradients;
}

TransformerStage::ForWeight TransformerStage::weight_views(Views& views) const {
    const int count = options_.layers.count;
    ForWeight left;
    for (int i = 0; i < count; ++i) left.gradients.push_back(gradient_views(views));
    for (int i = 0; i < count; ++i) left.layer_dy.push_back(hidden(views));
    left.stage_dy = hidden(views);
    left.stage_dx = hidden(views);
    return left;
}

TransformerStage::Scratch TransformerStage::scratch_views(Views& views) const {
    // GELU's backward is one product with its activation; a gate needs the product by itself.
    const int64_t f = config_.gated ? config_.ffn_hidden_size : 0;
    const int64_t widest = std::max({config_.hidden_size, config_.query_columns(), f});
    const Tensor rows = views.take(tokens_, widest, config_.dtype);
    return {.rows = rows, .attention = views.take_bytes(attention_bytes_)};
}

StageBytes TransformerStage::bytes() const {
    StageBytes bytes;
    Views saved;
    Views recomputed;
    saved_views(saved, recomputed);
    bytes.saved = saved.used();
    bytes.recomputed = recomputed.used();
    Views forward;
    scratch_views(forward);
    bytes.forward_workspace = forward.used();
    Views backward;
    gradient_views(backward);
    for (int i = 0; i < 2; ++i) hidden(backward);  // dx of two neighbouring layers
    scratch_views(backward);
    bytes.backward_workspace = backward.used();
    bytes.input_gradient_workspace = forward.used();
    Views for_weight;
    weight_views(for_weight);
    bytes.for_weight = for_weight.used();
    return bytes;
}

ConstTensor TransformerStage::layer_input(int layer, ConstTensor x, const Layers& saved) const {
    const Tensor own = saved.layers[static_cast<size_t>(layer)].x;
    return own ? ConstTensor(own) : x;
}

ConstTensor TransformerStage::final_input(ConstTensor x, const Layers& saved) const {
    return saved.final_input ? ConstTensor(saved.final_input) : x;
}

// --- norms

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

// --- forward

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

// --- backward

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

}  // namespace vocabpipe
