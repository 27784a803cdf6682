// SPDX-License-Identifier: Apache-2.0
#include "src/model/transformer_stage.hpp"

#include "kernels/operators.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

/// Offsets of a layer's parameters from layer_id().
enum LayerParameter : uint8_t {
    kLn1Weight,
    kLn1Bias,
    kQkvWeight,
    kQkvBias,
    kProjWeight,
    kProjBias,
    kLn2Weight,
    kLn2Bias,
    kFcWeight,
    kFcBias,
    kFcProjWeight,
    kFcProjBias,
    kPerLayer
};

}  // namespace

std::vector<ParameterRows> stage_parameters(const ModelConfig& config, const StageLayers& layers) {
    const std::vector<LogicalParameter> logical = logical_parameters(config);
    std::vector<ParameterRows> rows;
    const auto add = [&](int id) {
        rows.push_back({.id = id, .rows = logical[static_cast<size_t>(id)].rows});
    };
    for (int layer = layers.first; layer < layers.first + layers.count; ++layer) {
        for (int i = 0; i < kPerLayer; ++i) add(layer_id(layer) + i);
    }
    if (layers.positions) add(wpe_id());
    if (layers.final_norm) {
        add(final_norm_id(config));
        add(final_norm_id(config) + 1);
    }
    return rows;
}

TransformerStage::TransformerStage(const ModelConfig& config, const StageLayers& layers,
                                   const kernels::Operators& operators, int64_t sequences,
                                   int threads, std::span<Parameter> parameters)
    : config_(config),
      layers_(layers),
      tokens_(sequences * config.seq_length),
      attention_{sequences, config.seq_length, config.num_attention_heads, config.head_size(),
                 config.num_attention_heads},
      attention_bytes_(operators.attention_workspace_bytes(attention_, config.dtype, threads)),
      parameters_(parameters) {}

// --- layouts

Tensor TransformerStage::hidden(Views& views) const {
    return views.take(tokens_, config_.hidden_size, config_.dtype);
}

TransformerStage::Layers TransformerStage::saved_views(Views& views) const {
    const int64_t h = config_.hidden_size;
    const int64_t f = config_.ffn_hidden_size;
    const DType type = config_.dtype;
    Layers saved;
    for (int i = 0; i < layers_.count; ++i) {
        LayerSaved layer;
        if (i > 0 || layers_.positions) layer.x = hidden(views);
        layer.ln1_stats = views.take(tokens_, 2, DType::fp32);
        layer.ln1 = hidden(views);
        layer.qkv = views.take(tokens_, 3 * h, type);
        layer.lse = views.take(tokens_, config_.num_attention_heads, DType::fp32);
        layer.attention = hidden(views);
        layer.x_mid = hidden(views);
        layer.ln2_stats = views.take(tokens_, 2, DType::fp32);
        layer.ln2 = hidden(views);
        layer.fc = views.take(tokens_, f, type);
        layer.gelu = views.take(tokens_, f, type);
        saved.layers.push_back(layer);
    }
    if (layers_.final_norm) {
        if (layers_.count > 0 || layers_.positions) saved.final_input = hidden(views);
        saved.final_stats = views.take(tokens_, 2, DType::fp32);
    }
    return saved;
}

TransformerStage::LayerGradients TransformerStage::gradient_views(Views& views) const {
    LayerGradients gradients;
    gradients.qkv = views.take(tokens_, 3 * config_.hidden_size, config_.dtype);
    gradients.ln1 = hidden(views);
    gradients.x_mid = hidden(views);
    gradients.ln2 = hidden(views);
    gradients.fc = views.take(tokens_, config_.ffn_hidden_size, config_.dtype);
    return gradients;
}

TransformerStage::KeptForWeight TransformerStage::kept_views(Views& views) const {
    KeptForWeight kept;
    for (int i = 0; i < layers_.count; ++i) kept.gradients.push_back(gradient_views(views));
    for (int i = 0; i < layers_.count; ++i) kept.layer_dy.push_back(hidden(views));
    kept.stage_dy = hidden(views);
    kept.stage_dx = hidden(views);
    return kept;
}

StageBytes TransformerStage::bytes() const {
    StageBytes bytes;
    Views saved;
    saved_views(saved);
    bytes.saved = saved.used();
    Views forward;
    hidden(forward);
    forward.take_bytes(attention_bytes_);
    bytes.forward_workspace = forward.used();
    Views backward;
    gradient_views(backward);
    for (int i = 0; i < 3; ++i) hidden(backward);  // dx of two neighbouring layers, one scratch
    backward.take_bytes(attention_bytes_);
    bytes.backward_workspace = backward.used();
    Views input_gradient;
    hidden(input_gradient);
    input_gradient.take_bytes(attention_bytes_);
    bytes.input_gradient_workspace = input_gradient.used();
    Views for_weight;
    kept_views(for_weight);
    bytes.for_weight = for_weight.used();
    return bytes;
}

std::span<Parameter> TransformerStage::layer_parameters(int layer) {
    return parameters_.subspan(static_cast<size_t>(layer) * kPerLayer, kPerLayer);
}

ConstTensor TransformerStage::layer_input(int layer, ConstTensor x, const Layers& saved) const {
    const Tensor own = saved.layers[static_cast<size_t>(layer)].x;
    return own ? ConstTensor(own) : x;
}

// --- forward

void TransformerStage::forward(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
                               Saved saved_bytes, Bytes workspace) {
    const kernels::Operators& op = ctx.operators();
    Views saved_memory(saved_bytes.kept);
    const Layers saved = saved_views(saved_memory);
    Views scratch_memory(workspace);
    const Tensor scratch = hidden(scratch_memory);
    const Bytes attention_workspace = scratch_memory.take_bytes(attention_bytes_);

    // Where each layer's output goes: the next layer's input, the final norm's input, or y.
    const auto input_of = [&](int layer) {
        if (layer < layers_.count) return saved.layers[static_cast<size_t>(layer)].x;
        return layers_.final_norm ? saved.final_input : y;
    };
    if (layers_.positions) {
        const Parameter& wpe = parameters_[static_cast<size_t>(layers_.count) * kPerLayer];
        op.add_positions(ctx, x, wpe.weight, microbatch.seq_length, input_of(0));
        x = input_of(0);
    } else if (layers_.count == 0 && !layers_.final_norm) {
        op.convert(ctx, x, y);
    }
    for (int i = 0; i < layers_.count; ++i) {
        layer_forward(ctx, i, x, saved.layers[static_cast<size_t>(i)], input_of(i + 1), scratch,
                      attention_workspace);
        x = input_of(i + 1);
    }
    if (layers_.final_norm) {
        const auto norm = parameters_.last(2);
        op.layer_norm_forward(ctx, x, norm[0].weight, norm[1].weight, config_.layer_norm_epsilon, y,
                              saved.final_stats);
    }
}

void TransformerStage::recompute(Context&, const Microbatch&, ConstTensor, Saved, Bytes) {}

void TransformerStage::layer_forward(Context& ctx, int layer, ConstTensor x,
                                     const LayerSaved& saved, Tensor out, Tensor scratch,
                                     Bytes attention_workspace) {
    const kernels::Operators& op = ctx.operators();
    const std::span<Parameter> p = layer_parameters(layer);
    op.layer_norm_forward(ctx, x, p[kLn1Weight].weight, p[kLn1Bias].weight,
                          config_.layer_norm_epsilon, saved.ln1, saved.ln1_stats);
    op.linear_forward(ctx, saved.ln1, p[kQkvWeight].weight, p[kQkvBias].weight, saved.qkv);
    op.causal_attention_forward(ctx, saved.qkv, attention_, saved.attention, saved.lse,
                                attention_workspace);
    op.linear_add_forward(ctx, saved.attention, p[kProjWeight].weight, p[kProjBias].weight, x,
                          scratch, saved.x_mid);
    op.layer_norm_forward(ctx, saved.x_mid, p[kLn2Weight].weight, p[kLn2Bias].weight,
                          config_.layer_norm_epsilon, saved.ln2, saved.ln2_stats);
    op.linear_gelu_forward(ctx, saved.ln2, p[kFcWeight].weight, p[kFcBias].weight, saved.fc,
                           saved.gelu);
    op.linear_add_forward(ctx, saved.gelu, p[kFcProjWeight].weight, p[kFcProjBias].weight,
                          saved.x_mid, scratch, out);
}

// --- backward

void TransformerStage::layer_backward_input(Context& ctx, int layer, ConstTensor dy, ConstTensor x,
                                            const LayerSaved& saved,
                                            const LayerGradients& gradients, Tensor dx,
                                            Tensor scratch, Bytes attention_workspace) {
    const kernels::Operators& op = ctx.operators();
    const std::span<Parameter> p = layer_parameters(layer);
    op.linear_gelu_backward_input(ctx, dy, p[kFcProjWeight].weight, saved.fc, gradients.fc);
    op.linear_backward_input(ctx, gradients.fc, p[kFcWeight].weight, gradients.ln2);
    op.layer_norm_backward_input(ctx, gradients.ln2, saved.x_mid, p[kLn2Weight].weight,
                                 saved.ln2_stats, dy, gradients.x_mid);
    op.linear_backward_input(ctx, gradients.x_mid, p[kProjWeight].weight, scratch);
    op.causal_attention_backward(ctx, scratch, saved.qkv, saved.attention, saved.lse, attention_,
                                 gradients.qkv, attention_workspace);
    op.linear_backward_input(ctx, gradients.qkv, p[kQkvWeight].weight, gradients.ln1);
    op.layer_norm_backward_input(ctx, gradients.ln1, x, p[kLn1Weight].weight, saved.ln1_stats,
                                 gradients.x_mid, dx);
}

void TransformerStage::layer_backward_weight(Context& ctx, int layer, ConstTensor dy, ConstTensor x,
                                             const LayerSaved& saved,
                                             const LayerGradients& gradients, bool overwrite) {
    const kernels::Operators& op = ctx.operators();
    const std::span<Parameter> p = layer_parameters(layer);
    const bool add = !overwrite;
    const auto linear = [&](ConstTensor gradient, ConstTensor input, LayerParameter weight) {
        op.linear_backward_weight(ctx, gradient, input, p[weight].gradient,
                                  p[static_cast<size_t>(weight) + 1].gradient, add);
    };
    const auto norm = [&](ConstTensor gradient, ConstTensor input, ConstTensor stats,
                          LayerParameter weight) {
        op.layer_norm_backward_weight(ctx, gradient, input, stats, p[weight].gradient,
                                      p[static_cast<size_t>(weight) + 1].gradient, add);
    };
    linear(dy, saved.gelu, kFcProjWeight);
    linear(gradients.fc, saved.ln2, kFcWeight);
    norm(gradients.ln2, saved.x_mid, saved.ln2_stats, kLn2Weight);
    linear(gradients.x_mid, saved.attention, kProjWeight);
    linear(gradients.qkv, saved.ln1, kQkvWeight);
    norm(gradients.ln1, x, saved.ln1_stats, kLn1Weight);
}

void TransformerStage::backward(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                                ConstTensor x, Saved saved_bytes, Tensor dx, Bytes workspace,
                                bool overwrite) {
    const kernels::Operators& op = ctx.operators();
    Views saved_memory(saved_bytes.kept);
    const Layers saved = saved_views(saved_memory);
    Views memory(workspace);
    const LayerGradients gradients = gradient_views(memory);
    Tensor next = hidden(memory);
    Tensor other = hidden(memory);
    const Tensor scratch = hidden(memory);
    const Bytes attention_workspace = memory.take_bytes(attention_bytes_);

    if (layers_.final_norm) {
        const auto norm = parameters_.last(2);
        const ConstTensor input = saved.final_input ? ConstTensor(saved.final_input) : x;
        op.layer_norm_backward_weight(ctx, dy, input, saved.final_stats, norm[0].gradient,
                                      norm[1].gradient, !overwrite);
        const Tensor out = layers_.count == 0 ? dx : next;
        op.layer_norm_backward_input(ctx, dy, input, norm[0].weight, saved.final_stats, {}, out);
        dy = out;
        std::swap(next, other);
    } else if (layers_.count == 0) {
        op.convert(ctx, dy, dx);
    }
    for (int i = layers_.count - 1; i >= 0; --i) {
        const LayerSaved& layer = saved.layers[static_cast<size_t>(i)];
        const ConstTensor input = layer_input(i, x, saved);
        const Tensor out = i == 0 ? dx : next;
        layer_backward_input(ctx, i, dy, input, layer, gradients, out, scratch,
                             attention_workspace);
        layer_backward_weight(ctx, i, dy, input, layer, gradients, overwrite);
        dy = out;
        std::swap(next, other);
    }
    if (layers_.positions) {
        Parameter& wpe = parameters_[static_cast<size_t>(layers_.count) * kPerLayer];
        op.positions_gradient(ctx, dx, microbatch.seq_length, wpe.gradient, !overwrite);
    }
}

void TransformerStage::backward_input(Context& ctx, const Microbatch&, ConstTensor dy,
                                      ConstTensor x, Saved saved_bytes, Tensor dx, Bytes for_weight,
                                      Bytes workspace) {
    const kernels::Operators& op = ctx.operators();
    Views saved_memory(saved_bytes.kept);
    const Layers saved = saved_views(saved_memory);
    Views kept_memory(for_weight);
    const KeptForWeight kept = kept_views(kept_memory);
    Views memory(workspace);
    const Tensor scratch = hidden(memory);
    const Bytes attention_workspace = memory.take_bytes(attention_bytes_);

    op.convert(ctx, dy, kept.stage_dy);
    if (layers_.final_norm) {
        const auto norm = parameters_.last(2);
        const ConstTensor input = saved.final_input ? ConstTensor(saved.final_input) : x;
        op.layer_norm_backward_input(ctx, dy, input, norm[0].weight, saved.final_stats, {},
                                     layers_.count == 0 ? dx : kept.layer_dy.back());
    } else if (layers_.count == 0) {
        op.convert(ctx, dy, dx);
    } else {
        op.convert(ctx, dy, kept.layer_dy.back());
    }
    for (int i = layers_.count - 1; i >= 0; --i) {
        const auto at = static_cast<size_t>(i);
        layer_backward_input(ctx, i, kept.layer_dy[at], layer_input(i, x, saved), saved.layers[at],
                             kept.gradients[at], i == 0 ? dx : kept.layer_dy[at - 1], scratch,
                             attention_workspace);
    }
    op.convert(ctx, dx, kept.stage_dx);
}

void TransformerStage::backward_weight(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                                       Saved saved_bytes, Bytes for_weight, Bytes, bool overwrite) {
    const kernels::Operators& op = ctx.operators();
    Views saved_memory(saved_bytes.kept);
    const Layers saved = saved_views(saved_memory);
    Views kept_memory(for_weight);
    const KeptForWeight kept = kept_views(kept_memory);

    if (layers_.final_norm) {
        const auto norm = parameters_.last(2);
        const ConstTensor input = saved.final_input ? ConstTensor(saved.final_input) : x;
        op.layer_norm_backward_weight(ctx, kept.stage_dy, input, saved.final_stats,
                                      norm[0].gradient, norm[1].gradient, !overwrite);
    }
    for (int i = layers_.count - 1; i >= 0; --i) {
        const auto at = static_cast<size_t>(i);
        layer_backward_weight(ctx, i, kept.layer_dy[at], layer_input(i, x, saved), saved.layers[at],
                              kept.gradients[at], overwrite);
    }
    if (layers_.positions) {
        Parameter& wpe = parameters_[static_cast<size_t>(layers_.count) * kPerLayer];
        op.positions_gradient(ctx, kept.stage_dx, microbatch.seq_length, wpe.gradient, !overwrite);
    }
}

}  // namespace vocabpipe
