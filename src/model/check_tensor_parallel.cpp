// SPDX-License-Identifier: Apache-2.0
#include "src/model/check_tensor_parallel.hpp"

#include "src/model/router_sums.hpp"
#include "vocabpipe/error.hpp"

#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

std::string flag(int ranks) {
    return "--tensor-model-parallel-size " + std::to_string(ranks);
}

}  // namespace

void check_tensor_parallel(const ModelConfig& config, int ranks, int64_t tokens) {
    if (ranks == 1) return;
    if (ranks < 1) throw UsageError(flag(ranks) + ": must be at least 1");
    if (config.layer_forward) {
        throw UsageError(flag(ranks) +
                         ": layers of your own (ModelConfig::layer_forward) are not "
                         "cut among ranks; use 1");
    }
    if (config.has_latents()) {
        throw UsageError(flag(ranks) + ": latent attention (--model-type " + config.family +
                         ") is not cut among ranks; use 1");
    }
    const auto divide = [&](int64_t count, const std::string& what) {
        if (count % ranks == 0) return;
        throw UsageError(flag(ranks) + ": " + what + " is " + std::to_string(count) +
                         ", of which every rank needs equally many; use a divisor of " +
                         std::to_string(count));
    };
    divide(config.num_attention_heads, "--num-attention-heads");
    divide(config.kv_heads(), "--num-query-groups");
    const std::vector<int> routed = routed_layers(config);
    if (std::cmp_less(routed.size(), config.num_layers + config.mtp_num_layers) ||
        config.num_layers == 0) {
        divide(config.ffn_hidden_size, "--ffn-hidden-size");
    }
    if (!routed.empty() && config.moe.shared_expert && !config.moe.shared_gate) {
        divide(config.shared_ffn_hidden_size(), "--moe-shared-expert-intermediate-size");
    }
    divide(tokens, "--micro-batch-size times --seq-length");
}

}  // namespace vocabpipe
