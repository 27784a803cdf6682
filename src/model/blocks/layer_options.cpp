// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/layer_options.hpp"

#include "kernels/bf16.hpp"
#include "src/model/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// Tensor names of one layer, with its prefix and number.
TensorNames layer_names(const ModelConfig& config, int layer) {
    TensorNames names = tensor_names(config);
    const std::string prefix = layer_prefix(config, layer);
    for (std::string* name : {&names.attention_norm, &names.qkv,
                              &names.proj,           &names.post_attention_norm,
                              &names.mlp_norm,       &names.fc,
                              &names.fc_proj,        &names.post_mlp_norm,
                              &names.q_norm,         &names.k_norm,
                              &names.sinks,          &names.q,
                              &names.q_down,         &names.q_down_norm,
                              &names.q_up,           &names.kv_down,
                              &names.kv_down_norm,   &names.kv_up,
                              &names.qkv_down,       &names.router,
                              &names.experts,        &names.shared_gate,
                              &names.shared_expert,  &names.correction_bias}) {
        *name = prefix + *name;
    }
    for (std::string& name : names.qkv_parts) name = prefix + name;
    for (std::string& name : names.fc_parts) name = prefix + name;
    return names;
}

/// Before the names of tensors that only depths of multi-token prediction have.
std::string depth_prefix(const ModelConfig& config, int depth) {
    return layer_prefix(config, config.num_layers + depth);
}

NormOptions norm_options(const ModelConfig& config, std::string name) {
    return {.name = std::move(name),
            .kind = config.normalization,
            .size = config.hidden_size,
            .epsilon = config.norm_epsilon,
            .weight_offset = config.norm_weight_offset};
}

/// GPT-2 scales the projections into the residual stream by 1/sqrt(2 L).
float init_std_into_residual(const ModelConfig& config) {
    return config.init_std / std::sqrt(2.0F * static_cast<float>(config.num_layers));
}

}  // namespace

std::optional<Rope> rope_of_layer(const ModelConfig& config, int layer) {
    if (!config.has_rope(layer)) return std::nullopt;
    if (config.windowed_rope && config.window(layer) > 0) return config.windowed_rope;
    return config.rope;
}

AttentionOptions attention_options(const ModelConfig& config, int layer, const LayerTeams& teams) {
    const TensorNames names = layer_names(config, layer);
    const int like = std::min(layer, config.num_layers - 1);
    AttentionOptions options{.qkv = {.name = names.qkv,
                                     .parts = names.qkv_parts,
                                     .groups = names.qkv_by_head ? config.kv_heads() : 0,
                                     .transposed = names.transposed},
                             .proj = {.name = names.proj, .transposed = names.transposed},
                             .hidden_size = config.hidden_size,
                             .shape = {.heads = config.num_attention_heads,
                                       .head_size = config.head_size(),
                                       .kv_heads = config.kv_heads(),
                                       .scale = config.attention_scale,
                                       .softcap = config.attention_softcap,
                                       .window = config.window(like)},
                             .qkv_bias = config.qkv_bias,
                             .proj_bias = config.attention_output_bias,
                             .qkv_init_std = config.init_std,
                             .proj_init_std = init_std_into_residual(config),
                             .lora = config.lora,
                             .rope = rope_of_layer(config, like),
                             .rotary_size = config.rotary_size(),
                             .context = teams.context,
                             .exchange = teams.context_exchange,
                             .tensor = teams.tensor};
    if (config.softmax_type == SoftmaxType::learnable) {
        options.sinks = names.sinks;
        options.sinks_init_std = config.init_std;
    }
    if (config.qk_norm) {
        options.qk_norm = {.q_name = names.q_norm,
                           .k_name = names.k_norm,
                           .rms_norm = {.epsilon = config.norm_epsilon,
                                        .weight_offset = config.norm_weight_offset},
                           .by_head = config.qk_norm_by_head};
    }
    return options;
}

namespace {

/// Rows with rotary positions from `first` on. Weights have the first columns of all pairs, then
/// the second ones; files may have each pair side by side.
void add_rotary_rows(const LatentConfig& latent, const std::string& name, int64_t first,
                     std::vector<FilePart>& rows) {
    if (!latent.interleaved) {
        rows.push_back({.name = name, .count = latent.rope_size, .file_row = first});
        return;
    }
    for (const int64_t of_pair : {0, 1}) {
        rows.push_back({.name = name,
                        .count = latent.rope_size / 2,
                        .file_row = first + of_pair,
                        .file_step = 2});
    }
}

/// Rows of q: in weights a head has its columns with positions first, in files last.
void add_query_rows(const ModelConfig& config, const std::string& name,
                    std::vector<FilePart>& rows) {
    const LatentConfig& latent = config.latent;
    for (int64_t head = 0; head < config.num_attention_heads; ++head) {
        const int64_t first = head * config.head_size();
        add_rotary_rows(latent, name, first + latent.key_size, rows);
        rows.push_back({.name = name, .count = latent.key_size, .file_row = first});
    }
}

}  // namespace

LatentAttentionOptions latent_attention_options(const ModelConfig& config, int layer,
                                                const LayerTeams& teams) {
    // DeepSeek's code and transformers take it for these norms, whatever rms_norm_eps says.
    constexpr float kLatentEpsilon = 1e-6F;
    const TensorNames names = layer_names(config, layer);
    const LatentConfig& latent = config.latent;
    const bool q_latent = latent.q_rank > 0;
    const std::string& q = q_latent ? names.q_down : names.q;
    LatentAttentionOptions options{
        .down = {.name = names.qkv_down, .parts = {q, names.kv_down}},
        .q_up = {.name = names.q_up},
        .kv_up = {.name = names.kv_up, .groups = config.num_attention_heads},
        .proj = {.name = names.proj},
        .q_norm = {.name = names.q_down_norm, .epsilon = kLatentEpsilon},
        .kv_norm = {.name = names.kv_down_norm, .epsilon = kLatentEpsilon},
        .hidden_size = config.hidden_size,
        .heads = config.num_attention_heads,
        .q_rank = latent.q_rank,
        .kv_rank = latent.kv_rank,
        .key_size = latent.key_size,
        .rope_size = latent.rope_size,
        .value_size = latent.value_size,
        .scale = config.attention_scale,
        .rope = config.rope,
        .init_std = config.init_std,
        .proj_init_std = init_std_into_residual(config),
        .lora = config.lora,
        .context = teams.context,
        .tensor = teams.tensor};
    std::vector<FilePart>& down = options.down.rows;
    if (q_latent) {
        down.push_back({.name = q, .count = latent.q_rank});
        add_query_rows(config, names.q_up, options.q_up.rows);
    } else {
        add_query_rows(config, q, down);
    }
    down.push_back({.name = names.kv_down, .count = latent.kv_rank});
    add_rotary_rows(latent, names.kv_down, latent.kv_rank, down);
    return options;
}

MlpOptions mlp_options(const ModelConfig& config, int layer, int tensor) {
    const TensorNames names = layer_names(config, layer);
    MlpOptions options{.fc = {.name = names.fc, .transposed = names.transposed},
                       .fc_proj = {.name = names.fc_proj, .transposed = names.transposed},
                       .hidden_size = config.hidden_size,
                       .ffn_hidden_size = config.ffn_hidden_size,
                       .gated = config.gated,
                       .activation = config.activation,
                       .bias = config.mlp_bias,
                       .fc_init_std = config.init_std,
                       .proj_init_std = init_std_into_residual(config),
                       .lora = config.lora,
                       .tensor = tensor};
    if (config.gated) options.fc.parts = names.fc_parts;
    return options;
}

namespace {

MoeOptions moe_options(const ModelConfig& config, int layer, const LayerTeams& teams = {}) {
    const TensorNames names = layer_names(config, layer);
    const MoeConfig& moe = config.moe;
    return {.router = {.name = names.router,
                       .hidden_size = config.hidden_size,
                       .experts = moe.experts,
                       .routing = {.top_k = moe.top_k,
                                   .score = moe.score,
                                   .normalize = moe.normalize,
                                   .scaling = moe.scaling,
                                   .groups = moe.groups,
                                   .top_groups = moe.top_groups},
                       .correction_bias = moe.correction_bias ? names.correction_bias : "",
                       .aux_loss = moe.aux_loss,
                       .z_loss = moe.z_loss,
                       .init_std = config.init_std},
            .experts = {.name = names.experts,
                        .gate_name = names.expert_gate,
                        .up_name = names.expert_up,
                        .down_name = names.expert_down,
                        .hidden_size = config.hidden_size,
                        .ffn_hidden_size = config.expert_ffn_hidden_size(),
                        .experts = moe.experts,
                        .per_token = moe.top_k,
                        .activation = config.activation,
                        .gate_up_init_std = config.init_std,
                        .down_init_std = init_std_into_residual(config),
                        .cut = TensorCut::experts,
                        .ranks = teams.expert,
                        .expert_tensor = teams.expert_tensor,
                        .all_tokens = teams.all_tokens,
                        .pieces = teams.expert_pieces,
                        .row_factor = teams.row_factor}};
}

/// A shared expert with a gate is a mixture of one expert, whose weight is a sigmoid.
MoeOptions gated_shared_expert_options(const ModelConfig& config, int layer) {
    const TensorNames names = layer_names(config, layer);
    MoeOptions options = moe_options(config, layer);
    options.router.name = names.shared_gate;
    options.router.correction_bias = {};
    options.router.experts = 1;
    options.router.routing = {.top_k = 1, .score = kernels::RouterScore::sigmoid};
    options.router.aux_loss = 0;
    options.router.z_loss = 0;
    options.experts.name = names.shared_expert;
    options.experts.numbered = false;
    options.experts.ffn_hidden_size = config.shared_ffn_hidden_size();
    options.experts.experts = 1;
    options.experts.per_token = 1;
    options.experts.cut = TensorCut::repeated;
    return options;
}

/// A shared expert without a gate is an MLP.
MlpOptions shared_mlp_options(const ModelConfig& config, int layer, int tensor) {
    const std::string name = layer_names(config, layer).shared_expert;
    const TensorNames& names = tensor_names(config);
    MlpOptions options = mlp_options(config, layer, tensor);
    options.fc.name = name + "gate_up_proj";
    options.fc.parts = {name + names.expert_gate, name + names.expert_up};
    options.fc_proj.name = name + names.expert_down;
    options.ffn_hidden_size = config.shared_ffn_hidden_size();
    return options;
}

}  // namespace

FeedForwardOptions feed_forward_options(const ModelConfig& config, int layer,
                                        const LayerTeams& teams) {
    FeedForwardOptions options{.hidden_size = config.hidden_size,
                               .mlp = mlp_options(config, layer, teams.tensor),
                               .moe = {},
                               .gated_shared_expert = {},
                               .shared_expert = {}};
    if (!config.moe.in_layer(layer)) return options;
    options.moe = moe_options(config, layer, teams);
    if (config.moe.shared_expert && config.moe.shared_gate) {
        options.gated_shared_expert = gated_shared_expert_options(config, layer);
    } else if (config.moe.shared_expert) {
        options.shared_expert = shared_mlp_options(config, layer, teams.tensor);
    }
    return options;
}

DecoderLayerOptions decoder_layer_options(const ModelConfig& config, int layer,
                                          const LayerTeams& teams) {
    const TensorNames names = layer_names(config, layer);
    DecoderLayerOptions options;
    if (config.has_latents()) {
        options.attention.block = latent_attention_options(config, layer, teams);
    } else {
        options.attention.block = attention_options(config, layer, teams);
    }
    options.mlp.block = feed_forward_options(config, layer, teams);
    options.parallel = config.parallel_residual;
    if (config.pre_norms) {
        options.attention.norm = norm_options(config, names.attention_norm);
        options.mlp.norm = norm_options(config, names.mlp_norm);
    }
    if (config.post_norms) {
        options.attention.post_norm = norm_options(config, names.post_attention_norm);
        options.mlp.post_norm = norm_options(config, names.post_mlp_norm);
    }
    return options;
}

bool has_embedded_tokens(const ModelConfig& config) {
    return config.learned_positions || config.embedding_scale != 1;
}

EmbeddedTokensOptions embedded_tokens_options(const ModelConfig& config) {
    // Rounded as Gemma's own code rounds it.
    EmbeddedTokensOptions options{
        .scale = config.dtype == DType::bf16
                     ? kernels::to_float(kernels::to_bf16(config.embedding_scale))
                     : config.embedding_scale};
    if (config.learned_positions) {
        options.positions = {.name = tensor_names(config).positions,
                             .positions = config.max_position_embeddings,
                             .hidden_size = config.hidden_size,
                             .init_std = config.init_std};
    }
    return options;
}

NormOptions final_norm_options(const ModelConfig& config) {
    return norm_options(config, tensor_names(config).final_norm);
}

DepthProjectionOptions depth_projection_options(const ModelConfig& config, int depth) {
    const std::string prefix = depth_prefix(config, depth);
    return {.embedded_norm = norm_options(config, prefix + "enorm"),
            .hidden_norm = norm_options(config, prefix + "hnorm"),
            .projection = {.files = {.name = prefix + "eh_proj",
                                     .transposed = tensor_names(config).transposed},
                           .out = {config.hidden_size},
                           .in = 2 * config.hidden_size,
                           .init_std = config.init_std},
            .hidden_size = config.hidden_size};
}

NormOptions depth_norm_options(const ModelConfig& config, int depth) {
    return norm_options(config, depth_prefix(config, depth) + "shared_head.norm");
}

}  // namespace vocabpipe
