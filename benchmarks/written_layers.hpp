// SPDX-License-Identifier: Apache-2.0
// The library's own layers, written as a user would: by their forward.
#pragma once

#include "src/model/blocks/layer_options.hpp"
#include "src/model/parameters.hpp"
#include "vocabpipe/layer_graph.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/model_graph.hpp"

#include <cmath>
#include <string>

namespace vocabpipe {

/// A decoder layer of any family without experts, whose norms of q and k are by head.
inline LayerValue written_layer(LayerGraph& g, LayerValue x) {
    const ModelConfig& c = g.model();
    const TensorNames& names = tensor_names(c);
    const auto norm = [&](const std::string& name, LayerValue value) {
        return c.normalization == Normalization::layer_norm
                   ? g.layer_norm(name, value, c.norm_epsilon)
                   : g.rms_norm(name, value,
                                {.epsilon = c.norm_epsilon, .weight_offset = c.norm_weight_offset});
    };
    const float residual_std = c.init_std / std::sqrt(2.0F * static_cast<float>(c.num_layers));
    const auto attention = [&](LayerValue in) {
        const kernels::AttentionShape shape{.heads = c.num_attention_heads,
                                            .head_size = c.head_size(),
                                            .kv_heads = c.kv_heads(),
                                            .scale = c.attention_scale,
                                            .softcap = c.attention_softcap,
                                            .window = c.window(g.layer())};
        LayerValue qkv =
            g.linear(names.qkv, in,
                     {.out = {shape.query_columns(), shape.key_columns(), shape.value_columns()},
                      .bias = c.qkv_bias,
                      .parts = names.qkv_parts,
                      .transposed_in_files = names.transposed});
        if (c.qk_norm) {
            qkv = g.head_norm(names.q_norm, names.k_norm, qkv, shape,
                              {.epsilon = c.norm_epsilon, .weight_offset = c.norm_weight_offset});
        }
        if (c.has_rope(g.layer())) qkv = g.rotary(qkv, shape);
        return g.linear(names.proj, g.attention(qkv, shape),
                        {.out = {c.hidden_size},
                         .bias = c.attention_output_bias,
                         .init_std = residual_std,
                         .transposed_in_files = names.transposed});
    };
    const auto mlp = [&](LayerValue in) {
        const LayerValue fc =
            g.linear(names.fc, in,
                     {.out = c.gated ? std::vector{c.ffn_hidden_size, c.ffn_hidden_size}
                                     : std::vector{c.ffn_hidden_size},
                      .bias = c.mlp_bias,
                      .parts = c.gated ? names.fc_parts : std::vector<std::string>(),
                      .transposed_in_files = names.transposed});
        return g.linear(names.fc_proj,
                        c.gated ? g.gated(c.activation, fc) : g.activation(c.activation, fc),
                        {.out = {c.hidden_size},
                         .bias = c.mlp_bias,
                         .init_std = residual_std,
                         .transposed_in_files = names.transposed});
    };
    const auto before = [&](const std::string& name, LayerValue value) {
        return c.pre_norms ? norm(name, value) : value;
    };
    const auto after = [&](const std::string& name, LayerValue value) {
        return c.post_norms ? norm(name, value) : value;
    };
    const LayerValue attended =
        after(names.post_attention_norm, attention(before(names.attention_norm, x)));
    if (c.parallel_residual) return x + attended + mlp(before(names.mlp_norm, x));
    const LayerValue middle = x + attended;
    return middle + after(names.post_mlp_norm, mlp(before(names.mlp_norm, middle)));
}

/// All between embedding and output layer, with a pipeline_stage() between layers.
inline void written_model(ModelGraph& g) {
    const ModelConfig& c = g.model();
    const TensorNames& names = tensor_names(c);
    LayerValue x = g.embedded_tokens();
    if (c.learned_positions) x = g.positions(names.positions, x);
    if (c.embedding_scale != 1) x = g.scale(x, c.embedding_scale);
    for (int layer = 0; layer < c.num_layers; ++layer) {
        x = written_layer(g, x);
        if (layer + 1 < c.num_layers) g.pipeline_stage();
    }
    g.output(c.normalization == Normalization::layer_norm
                 ? g.layer_norm(names.final_norm, x, c.norm_epsilon)
                 : g.rms_norm(names.final_norm, x,
                              {.epsilon = c.norm_epsilon, .weight_offset = c.norm_weight_offset}));
}

/// `config` with its layers written so.
inline ModelConfig with_written_layers(ModelConfig config) {
    config.layer_forward = written_layer;
    return config;
}
/// `config` as one function. Its parameters have the same order and so the same initial values.
inline ModelConfig as_written_model(const ModelConfig& config) {
    return model_of(written_model, config);
}

}  // namespace vocabpipe
