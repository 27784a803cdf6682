// SPDX-License-Identifier: Apache-2.0
// OLMoE (Muennighoff et al. 2024, arXiv 2409.02060): Llama with experts in all layers, and norms of
// q and of k, each over all of its heads.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/mixture.hpp"
#include "src/model/families/rotary_decoder.hpp"
#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

namespace {

constexpr int64_t kOlmoeExperts = 64, kOlmoePerToken = 8;  // transformers' defaults

void set_olmoe(ModelConfig& c) {
    set_rotary_decoder(c);
    set_experts(c);
    c.qk_norm = true;
    c.qk_norm_by_head = false;
}

void read_olmoe(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    c.activation = read_activation(file, kGateNames);
    if (const auto clip = file.given("clip_qkv")) clip->fail("is not supported; it must be null");
    if (c.kv_channels > 0) {
        file.json().at("head_dim").fail("must be hidden_size / num_attention_heads in this family");
    }
    read_experts(file, kOlmoeExperts, kOlmoePerToken, c);
    c.moe.normalize = file.flag("norm_topk_prob", false);
}

void print_olmoe(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    json["clip_qkv"] = nullptr;
    json["num_experts"] = c.moe.experts;
    json["norm_topk_prob"] = c.moe.normalize;
    print_experts(c, json);
    print_no_padding(json);
}

void check_olmoe(const ModelConfig& c) {
    refuse_dense_layers(c);
    refuse_own_expert_size(c);
    if (c.kv_channels == 0 || c.kv_channels * c.num_attention_heads == c.hidden_size) return;
    throw UsageError("--kv-channels " + std::to_string(c.kv_channels) + ": --model-type " +
                     c.family + " has heads of hidden size / heads; remove the flag");
}

TensorNames olmoe_names() {
    TensorNames names = rotary_decoder_names();
    name_experts(names);
    return names;
}

}  // namespace

ModelFamily families::olmoe() {
    return {.name = "olmoe",
            .architecture = "OlmoeForCausalLM",
            .defaults = {.positions = 4096, .epsilon = 1e-5},
            .switches = {{"attention_bias"}},
            .tensors = olmoe_names(),
            .no_weights = {kRotaryFrequencies},
            .set = set_olmoe,
            .read = read_olmoe,
            .print = print_olmoe,
            .check = check_olmoe};
}

}  // namespace vocabpipe
