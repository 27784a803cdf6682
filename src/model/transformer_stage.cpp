// SPDX-License-Identifier: Apache-2.0
#include "src/model/transformer_stage.hpp"

#include "kernels/bf16.hpp"
#include "src/model/parameters.hpp"
#include "vocabpipe/operators.hpp"

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

ConstTensor TransformerStage::layer_input(int layer, ConstTensor x, const Layers& saved) const {
    const Tensor own = saved.layers[static_cast<size_t>(layer)].x;
    return own ? ConstTensor(own) : x;
}

ConstTensor TransformerStage::final_input(ConstTensor x, const Layers& saved) const {
    return saved.final_input ? ConstTensor(saved.final_input) : x;
}

}  // namespace vocabpipe
