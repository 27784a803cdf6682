// SPDX-License-Identifier: Apache-2.0
#include "src/model/families/mixture.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

void set_experts(ModelConfig& c) {
    constexpr int64_t kExperts = 8;
    if (c.moe.experts == 0) c.moe.experts = kExperts;
}

void read_experts(const ConfigValues& file, int64_t experts, int64_t top_k, ModelConfig& c) {
    const char* const key = file.given("num_local_experts") ? "num_local_experts" : "num_experts";
    c.moe.experts = file.size(key, experts, experts, kMostExperts);
    c.moe.top_k = file.size("num_experts_per_tok", top_k, top_k, kMostExperts);
    check_per_token(file, key, c);
}

void check_per_token(const ConfigValues& file, const std::string& key, const ModelConfig& c) {
    if (c.moe.top_k <= c.moe.experts) return;
    file.json().fail("num_experts_per_tok is " + std::to_string(c.moe.top_k) +
                     ", but must be at most " + key + " " + std::to_string(c.moe.experts));
}

void print_experts(const ModelConfig& c, nlohmann::ordered_json& json) {
    json["num_experts_per_tok"] = c.moe.top_k;
    json["router_aux_loss_coef"] = c.moe.aux_loss;
    json["output_router_logits"] = false;
}

void read_sparse_layers(const ConfigValues& file, ModelConfig& c) {
    const int64_t step = file.size("decoder_sparse_step", 1, 1, UINT16_MAX);
    std::vector<bool> sparse;
    for (int layer = 0; layer < c.num_layers; ++layer) sparse.push_back((layer + 1) % step == 0);
    if (const auto dense = file.given("mlp_only_layers")) {
        for (const StrictJson& entry : dense->items(UINT16_MAX)) {
            sparse[static_cast<size_t>(entry.integer(0, c.num_layers - 1))] = false;
        }
    }
    if (std::ranges::find(sparse, true) == sparse.end()) {
        file.json().fail(
            "no layer has experts (decoder_sparse_step, mlp_only_layers); use a family "
            "without them");
    }
    c.moe.sparse.clear();
    if (std::ranges::find(sparse, false) != sparse.end()) c.moe.sparse = std::move(sparse);
}

void print_sparse_layers(const ModelConfig& c, nlohmann::ordered_json& json) {
    json["decoder_sparse_step"] = 1;
    nlohmann::ordered_json dense = nlohmann::ordered_json::array();
    for (int layer = 0; layer < c.num_layers; ++layer) {
        if (!c.moe.in_layer(layer)) dense.push_back(layer);
    }
    json["mlp_only_layers"] = std::move(dense);
}

void refuse_dense_layers(const ModelConfig& c) {
    if (std::ranges::find(c.moe.sparse, false) == c.moe.sparse.end()) return;
    throw UsageError("--moe-layer-freq: --model-type " + c.family +
                     " has experts in all layers; remove the flag, or use qwen3_moe");
}

void refuse_own_expert_size(const ModelConfig& c) {
    if (c.expert_ffn_hidden_size() == c.ffn_hidden_size) return;
    throw UsageError("--moe-ffn-hidden-size " + std::to_string(c.moe.ffn_hidden_size) +
                     ": --model-type " + c.family + " has experts of --ffn-hidden-size " +
                     std::to_string(c.ffn_hidden_size) + "; set that flag instead");
}

void refuse_plain_weights(const ModelConfig& c) {
    if (c.moe.normalize) return;
    throw UsageError("--moe-router-pre-softmax: --model-type " + c.family +
                     " has weights that add up to 1; remove the flag, or use qwen3_moe");
}

void name_experts(TensorNames& names) {
    names.router = "mlp.gate";
    names.experts = "mlp.experts.";
    names.expert_gate = "gate_proj";
    names.expert_up = "up_proj";
    names.expert_down = "down_proj";
    names.stacked_experts = "mlp.experts.";
}

}  // namespace vocabpipe
