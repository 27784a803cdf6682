// SPDX-License-Identifier: Apache-2.0
// Small models of families that differ in how files hold them, for meshes with tensor ranks.
#pragma once

#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/model_rank.hpp"

#include <string_view>
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
    return config;
}

/// Transposed in files, with biases and positions; gated, with groups of heads; with q, k and v
/// together by head; with norms of heads, which all ranks have; tied ones.
[[nodiscard]] inline std::vector<ModelConfig> tensor_models() {
    return {tensor_model("gpt2", true),      tensor_model("gpt2", false),
            tensor_model("llama", false),    tensor_model("llama", true),
            tensor_model("gpt_neox", false), tensor_model("qwen3", true)};
}

[[nodiscard]] inline Schedule tensor_schedule(const ModelConfig& config, const Mesh& mesh,
                                              VocabMode mode) {
    return make_schedule("1f1b", {.ranks = mesh.pipeline,
                                  .microbatches = 2,
                                  .vocab_mode = mode,
                                  .vocab_size = config.vocab_size});
}

[[nodiscard]] inline ModelPartition tensor_partition(const ModelConfig& config, const Mesh& mesh) {
    return {.layers_per_stage = std::vector<int>(static_cast<size_t>(mesh.pipeline),
                                                 config.num_layers / mesh.pipeline),
            .replicas = mesh.data,
            .tensor = mesh.tensor};
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
