// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/router_options.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Most experts of a layer: no real model comes near.
inline constexpr int64_t kMostExperts = int64_t{1} << 12;

/// A mixture of experts in place of the MLP: a router sends every token to `top_k` of the experts,
/// gated MLPs of their own. No token is dropped.
struct MoeConfig {
    int64_t experts = 0;          ///< E; 0: a model without experts
    int64_t top_k = 2;            ///< k, experts of a token
    int64_t ffn_hidden_size = 0;  ///< of one expert; 0: ModelConfig::ffn_hidden_size
    /// Besides, an expert that computes every token, whose output is multiplied by the sigmoid of a
    /// product of the token (Qwen 2).
    bool shared_expert = false;
    int64_t shared_ffn_hidden_size = 0;  ///< of it; 0: ModelConfig::ffn_hidden_size
    kernels::RouterScore score = kernels::RouterScore::softmax;  ///< what the k best are chosen by
    bool normalize = true;  ///< a token's k weights are divided by their sum
    float scaling = 1;      ///< then multiplied by this
    float aux_loss = 0;  ///< coefficient of the load balancing loss, per layer; of training alone
    float z_loss = 0;    ///< of the router's z loss, likewise
    /// [layer] has experts, else an MLP; empty: all have.
    std::vector<bool> sparse = {};

    /// Whether the layer, counted from 0, has experts.
    [[nodiscard]] bool in_layer(int layer) const {
        return experts > 0 && (sparse.empty() || sparse[static_cast<size_t>(layer)]);
    }
    /// Member by member.
    bool operator==(const MoeConfig&) const = default;
};

struct ModelConfig;

/// Throws UsageError naming flag, value, limit and remedy.
void check_experts(const ModelConfig& config);

}  // namespace vocabpipe
