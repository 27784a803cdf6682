// SPDX-License-Identifier: Apache-2.0
// dots.llm1 (Huo et al. 2025, arXiv 2506.05767): Qwen 3's attention and DeepSeek-V3's mixture of
// experts (arXiv 2412.19437) after the first layers. The router chooses by sigmoid scores and a
// correction bias, inside groups; experts that all tokens share have no gate.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/mixture.hpp"
#include "src/model/families/rotary_decoder.hpp"
#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

namespace {

constexpr int64_t kDotsExpertSize = 1408;  // transformers' default
constexpr int64_t kDotsFullLayers = 62;    // likewise, of max_window_layers

void set_dots1(ModelConfig& c) {
    set_rotary_decoder(c);
    set_experts(c);
    c.qk_norm = true;
    c.moe.shared_expert = true;
    c.moe.shared_gate = false;
    c.moe.score = kernels::RouterScore::sigmoid;
    c.moe.correction_bias = true;
}

/// Layers with an MLP, before all with experts.
int leading_dense_layers(const ModelConfig& c) {
    int dense = 0;
    while (dense < c.num_layers && !c.moe.in_layer(dense)) ++dense;
    return dense;
}

void read_leading_layers(const ConfigValues& file, ModelConfig& c) {
    const auto given = file.given("first_k_dense_replace");
    const int64_t dense = given ? given->integer(0, c.num_layers - 1) : 0;
    c.moe.sparse.clear();
    if (dense == 0) return;
    for (int layer = 0; layer < c.num_layers; ++layer) c.moe.sparse.push_back(layer >= dense);
}

/// Unless layer_types says otherwise, the layers from max_window_layers on have a window.
void read_windows(const ConfigValues& file, ModelConfig& c) {
    const auto first = file.given("max_window_layers");
    const int64_t full = first ? first->integer(0, INT32_MAX) : kDotsFullLayers;
    read_layer_types(
        file, read_window(file), "", [&](int layer) { return layer >= full; }, c);
}

/// n_group and topk_group: a token chooses from the best groups of experts.
void read_groups(const ConfigValues& file, ModelConfig& c) {
    c.moe.groups = file.size("n_group", 1, 1, kMostExperts);
    c.moe.top_groups = file.size("topk_group", 1, 1, kMostExperts);
    const auto number = [](int64_t value) { return std::to_string(value); };
    if (c.moe.experts % c.moe.groups != 0) {
        file.json().fail("n_group is " + number(c.moe.groups) +
                         ", but must divide n_routed_experts " + number(c.moe.experts));
    }
    if (c.moe.top_groups > c.moe.groups) {
        file.json().fail("topk_group is " + number(c.moe.top_groups) +
                         ", but must be at most n_group " + number(c.moe.groups));
    }
    const int64_t open = c.moe.top_groups * (c.moe.experts / c.moe.groups);
    if (c.moe.top_k > open) {
        file.json().fail("num_experts_per_tok is " + number(c.moe.top_k) +
                         ", but topk_group's groups have " + number(open) + " experts");
    }
}

void read_dots1(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    c.activation = read_activation(file, kGateNames);
    read_windows(file, c);
    c.moe.experts = file.json().at("n_routed_experts").integer(1, kMostExperts);
    c.moe.top_k = file.json().at("num_experts_per_tok").integer(1, kMostExperts);
    check_per_token(file, "n_routed_experts", c);
    c.moe.ffn_hidden_size =
        file.size("moe_intermediate_size", kDotsExpertSize, kDotsExpertSize, kWidest);
    c.moe.shared_ffn_hidden_size =
        c.moe.ffn_hidden_size *
        file.json().at("n_shared_experts").integer(1, kWidest / c.moe.ffn_hidden_size);
    c.moe.normalize = file.flag("norm_topk_prob", false);
    c.moe.scaling = static_cast<float>(file.positive("routed_scaling_factor", 1));
    read_groups(file, c);
    read_leading_layers(file, c);
}

void print_dots1(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    int full = 0;
    while (full < c.num_layers && c.window(full) == 0) ++full;
    json["max_window_layers"] = full;
    print_window(c, json);
    print_layer_types(c, json);
    json["n_routed_experts"] = c.moe.experts;
    json["n_shared_experts"] = c.shared_ffn_hidden_size() / c.expert_ffn_hidden_size();
    json["moe_intermediate_size"] = c.expert_ffn_hidden_size();
    json["norm_topk_prob"] = c.moe.normalize;
    json["routed_scaling_factor"] = shortest(c.moe.scaling);
    json["n_group"] = c.moe.groups;
    json["topk_group"] = c.moe.top_groups;
    json["first_k_dense_replace"] = leading_dense_layers(c);
    print_experts(c, json);
    print_no_padding(json);
}

void check_dots1(const ModelConfig& c) {
    for (int layer = leading_dense_layers(c); layer < c.num_layers; ++layer) {
        if (c.moe.in_layer(layer)) continue;
        throw UsageError("--moe-layer-freq: --model-type " + c.family +
                         " has layers without experts only before all with experts; set 0s, then "
                         "1s, as in 0,1,1");
    }
    const int64_t of_expert = c.expert_ffn_hidden_size(), shared = c.shared_ffn_hidden_size();
    if (shared % of_expert != 0) {
        throw UsageError("--moe-shared-expert-intermediate-size " + std::to_string(shared) +
                         ": --model-type " + c.family + " needs a multiple of the " +
                         std::to_string(of_expert) + " of an expert (--moe-ffn-hidden-size)");
    }
}

TensorNames dots1_names() {
    TensorNames names = rotary_decoder_names();
    name_experts(names);
    names.correction_bias = "mlp.gate.e_score_correction_bias";
    names.shared_expert = "mlp.shared_experts.";
    return names;
}

}  // namespace

ModelFamily families::dots1() {
    return {.name = "dots1",
            .architecture = "Dots1ForCausalLM",
            .defaults = {.positions = 2048, .kv_heads = 32},
            .switches = {{"attention_bias"}},
            .tensors = dots1_names(),
            .no_weights = {kRotaryFrequencies},
            .set = set_dots1,
            .read = read_dots1,
            .print = print_dots1,
            .check = check_dots1};
}

}  // namespace vocabpipe
