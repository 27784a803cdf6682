// SPDX-License-Identifier: Apache-2.0
// Where the passes of a stage find what they leave for each other: views of the bytes that the
// executor hands them, and how many bytes these are.
#include "src/model/transformer_stage.hpp"

namespace vocabpipe {

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

}  // namespace vocabpipe
