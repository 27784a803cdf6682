// SPDX-License-Identifier: Apache-2.0
// Small models of families that differ in how files hold them, for meshes with tensor ranks and
// expert ranks.
#pragma once

#include "src/model/check_expert_parallel.hpp"
#include "src/model/check_tensor_parallel.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/model_rank.hpp"

#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe::testing {

/// Four heads of keys and values, so that up to four tensor ranks have some.
[[nodiscard]] inline ModelConfig tensor_model(std::string_view family, bool tied) {
    ModelConfig config;
    config.num_layers = 2;
    config.hidden_size = 32;
    config.ffn_hidden_size = 48;
    config.num_attention_heads = 4;
    config.seq_length = config.max_position_embeddings = 8;
    config.vocab_size = 61;  // shards differ by a row
    config.tied = tied;
    set_family(config, family);
    if (family == "llama") {
        config.num_attention_heads = 8;
        config.num_query_groups = 4;
        config.kv_channels = 8;  // not h / heads
        config.qkv_bias = config.attention_output_bias = true;
    }
    if (family == "gpt_neox") config.rotary_channels = 4;
    if (config.has_latents()) {
        config.latent = {
            .kv_rank = 10, .q_rank = 12, .key_size = 6, .rope_size = 4, .value_size = 7};
    }
    return config;
}

/// `config` with attention sinks.
[[nodiscard]] inline ModelConfig with_sinks(ModelConfig config) {
    config.softmax_type = SoftmaxType::learnable;
    return config;
}

/// Transposed in files, with biases and positions; gated, with groups of heads; with q, k and v
/// together by head; with norms of heads, which all ranks have; tied ones; with sinks, which ranks
/// share with the heads.
[[nodiscard]] inline std::vector<ModelConfig> tensor_models() {
    return {tensor_model("gpt2", true),      tensor_model("gpt2", false),
            tensor_model("llama", false),    tensor_model("llama", true),
            tensor_model("gpt_neox", false), with_sinks(tensor_model("qwen3", true))};
}

/// A model of every family with experts: four of them, so that up to four ranks share them. In
/// dots1 and deepseek_v3 the first layer has none.
[[nodiscard]] inline std::vector<ModelConfig> expert_models() {
    std::vector<ModelConfig> models;
    for (const char* family :
         {"mixtral", "qwen3_moe", "olmoe", "qwen2_moe", "dots1", "deepseek_v3"}) {
        ModelConfig config = tensor_model(family, false);
        config.moe.experts = 4;
        config.moe.ffn_hidden_size = 24;
        if (config.moe.shared_expert && config.moe.shared_gate) {
            config.moe.shared_ffn_hidden_size = 40;
        }
        if (config.moe.correction_bias) config.moe.sparse = {false, true};
        // Their config.json has one size.
        if (config.family == "mixtral" || config.family == "olmoe") config.moe.ffn_hidden_size = 0;
        models.push_back(config);
    }
    return models;
}

[[nodiscard]] inline std::vector<ModelConfig> tensor_and_expert_models() {
    std::vector<ModelConfig> models = tensor_models();
    for (ModelConfig& model : expert_models()) models.push_back(std::move(model));
    return models;
}

/// Those whose tensor and expert ranks can share the model.
[[nodiscard]] inline std::vector<Mesh> that_share(const ModelConfig& config,
                                                  std::vector<Mesh> meshes) {
    std::erase_if(meshes, [&](const Mesh& mesh) {
        try {
            check_tensor_parallel(config, mesh.tensor, config.seq_length);
            check_expert_parallel(config, mesh.expert);
            return false;
        } catch (const UsageError&) {
            return true;
        }
    });
    return meshes;
}

[[nodiscard]] inline Schedule tensor_schedule(const ModelConfig& config, const Mesh& mesh,
                                              VocabMode mode) {
    return make_schedule("1f1b", {.ranks = mesh.pipeline,
                                  .microbatches = 2,
                                  .vocab_mode = mode,
                                  .vocab_size = config.vocab_size});
}

[[nodiscard]] inline ModelPartition tensor_partition(const ModelConfig& config, const Mesh& mesh,
                                                     int expert_tensor = 1) {
    return {.layers_per_stage = std::vector<int>(static_cast<size_t>(mesh.pipeline),
                                                 config.num_layers / mesh.pipeline),
            .replicas = mesh.data,
            .tensor = mesh.tensor,
            .expert = mesh.expert,
            .expert_tensor = expert_tensor};
}

/// Numbers in the logical tensor of the elements of a rank's weight, in its order.
[[nodiscard]] inline std::vector<int64_t> held_elements(const Parameter& p) {
    std::vector<int64_t> held;
    for (const TensorShard::Range& rows : p.shard.rows) {
        for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
            for (const TensorShard::Range& columns : p.shard.columns) {
                for (int64_t i = 0; i < columns.count; ++i) {
                    held.push_back(row * p.logical_cols + columns.first + i);
                }
            }
        }
    }
    return held;
}

}  // namespace vocabpipe::testing
