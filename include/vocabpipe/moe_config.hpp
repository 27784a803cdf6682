// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/router_options.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Most experts of a layer, far more than any real model has.
inline constexpr int64_t kMostExperts = int64_t{1} << 12;

/// Expert rows for which an expert rank has memory, as a multiple of its rows when all experts have
/// equally many. Real routing stays below; rows beyond it take more time.
inline constexpr double kMoeRowFactor = 1.25;

/// The pieces in which ranks that share experts exchange rows while they compute others. No bit
/// depends on them.
struct ExpertPieces {
    int dispatch = 4;  ///< pieces of the rows that one member sends another
    int combine = 4;   ///< panels of columns of the experts' output
};

/// A mixture of experts in place of the MLP: a router sends every token to `top_k` of the experts,
/// gated MLPs of their own. No token is dropped.
struct MoeConfig {
    int64_t experts = 0;          ///< E, experts of a layer; 0: a model without experts
    int64_t top_k = 2;            ///< k, experts of a token
    int64_t ffn_hidden_size = 0;  ///< f of one expert; 0: that of the MLP
    /// Adds an expert that computes every token.
    bool shared_expert = false;
    /// The shared expert's output is multiplied by the sigmoid of a product of the token (Qwen 2);
    /// else it is added unscaled (DeepSeek-V3).
    bool shared_gate = true;
    /// Feed-forward size of the shared expert; 0: ModelConfig::ffn_hidden_size with shared_gate,
    /// else that of one expert.
    int64_t shared_ffn_hidden_size = 0;
    kernels::RouterScore score = kernels::RouterScore::softmax;  ///< what the k best are chosen by
    bool normalize = true;   ///< a token's k weights are divided by their sum
    float scaling = 1;       ///< what these weights are then multiplied by
    int64_t groups = 1;      ///< groups of neighboring experts, equally many in each
    int64_t top_groups = 1;  ///< a token chooses from the experts of this many of them
    /// Experts are chosen by score + bias, one fp32 bias per expert and layer (DeepSeek-V3).
    bool correction_bias = false;

    // For training only.

    float aux_loss = 0;  ///< coefficient of the load balancing loss, per layer
    float z_loss = 0;    ///< coefficient of the router's z loss, per layer
    /// What a step adds to the bias of an expert with less load than the mean of its layer, and
    /// takes from that of one with more; 0: biases stay as they are.
    float bias_rate = 0;
    /// [layer] Whether it has experts instead of an MLP; empty: all have.
    std::vector<bool> sparse = {};

    /// Whether the layer, counted from 0, has experts. Those after the model's last one are of
    /// depths of multi-token prediction, and like the last one.
    [[nodiscard]] bool in_layer(int layer) const {
        return experts > 0 &&
               (sparse.empty() || sparse[std::min(static_cast<size_t>(layer), sparse.size() - 1)]);
    }
    /// Member by member.
    bool operator==(const MoeConfig&) const = default;
};

struct ModelConfig;

/// Throws UsageError naming flag, value, limit and remedy.
void check_experts(const ModelConfig& config);

}  // namespace vocabpipe
