// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

#include <cstdint>

namespace vocabpipe {

/// How the config.json of a family is written, and transformers' defaults for keys left out.
struct ModelConfigKeys {
    ModelFamily family;
    const char* architecture;
    const char* layers = "num_hidden_layers";
    const char* hidden = "hidden_size";
    const char* ffn = "intermediate_size";
    const char* heads = "num_attention_heads";
    const char* positions = "max_position_embeddings";
    const char* epsilon = "rms_norm_eps";
    const char* activation = "hidden_act";
    const char* default_activation = "silu";
    double default_epsilon = 1e-6;
    int64_t default_kv_heads = 0;   ///< 0: as many as attention heads
    int64_t default_head_size = 0;  ///< 0: hidden size / attention heads
    bool default_tied = false;
    bool attention_bias = false;      ///< has the key: biases of q, k, v and the output projection
    bool mlp_bias = false;            ///< has the key
    bool use_sliding_window = false;  ///< has the key, and max_window_layers
};

[[nodiscard]] const ModelConfigKeys& model_config_keys(ModelFamily family);

/// As a user writes it: 1e-05, not 9.999999747378752e-06.
[[nodiscard]] double shortest(float value);

}  // namespace vocabpipe
