// SPDX-License-Identifier: Apache-2.0
#include "src/model/families/grouped_mixture.hpp"

#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/families/mixture.hpp"
#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

void set_grouped_mixture(ModelConfig& c) {
    set_experts(c);
    c.moe.shared_expert = true;
    c.moe.shared_gate = false;
    c.moe.score = kernels::RouterScore::sigmoid;
    c.moe.correction_bias = true;
}

namespace {

/// Layers with an MLP, before all with experts.
int leading_dense_layers(const ModelConfig& c) {
    int dense = 0;
    while (dense < c.num_layers && !c.moe.in_layer(dense)) ++dense;
    return dense;
}

void read_leading_layers(const ConfigValues& file, int64_t otherwise, ModelConfig& c) {
    const auto given = file.given("first_k_dense_replace");
    const int64_t dense = given ? given->integer(0, c.num_layers - 1) : otherwise;
    if (dense >= c.num_layers) {
        file.json().fail("no layer has experts: first_k_dense_replace is " + std::to_string(dense) +
                         " by default, num_hidden_layers " + std::to_string(c.num_layers) +
                         "; set first_k_dense_replace");
    }
    c.moe.sparse.clear();
    if (dense == 0) return;
    for (int layer = 0; layer < c.num_layers; ++layer) c.moe.sparse.push_back(layer >= dense);
}

/// A number of experts; without a default the key must be there.
int64_t read_count(const ConfigValues& file, const char* key, int64_t otherwise, int64_t most) {
    const bool given = otherwise == 0 || file.json().has(key);
    return given ? file.json().at(key).integer(1, most) : otherwise;
}

/// n_group and topk_group: a token chooses from the best groups of experts.
void read_groups(const ConfigValues& file, const GroupedMixtureDefaults& defaults, ModelConfig& c) {
    c.moe.groups = file.size("n_group", defaults.groups, 1, kMostExperts);
    c.moe.top_groups = file.size("topk_group", defaults.top_groups, 1, kMostExperts);
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

}  // namespace

void read_grouped_mixture(const ConfigValues& file, const GroupedMixtureDefaults& defaults,
                          ModelConfig& c) {
    c.moe.experts = read_count(file, "n_routed_experts", defaults.experts, kMostExperts);
    c.moe.top_k = read_count(file, "num_experts_per_tok", defaults.per_token, kMostExperts);
    check_per_token(file, "n_routed_experts", c);
    c.moe.ffn_hidden_size =
        file.size("moe_intermediate_size", defaults.expert_size, defaults.expert_size, kWidest);
    c.moe.shared_ffn_hidden_size =
        c.moe.ffn_hidden_size *
        read_count(file, "n_shared_experts", defaults.shared, kWidest / c.moe.ffn_hidden_size);
    c.moe.normalize = file.optional_flag("norm_topk_prob", defaults.normalize);
    c.moe.scaling = static_cast<float>(file.positive("routed_scaling_factor", defaults.scaling));
    read_groups(file, defaults, c);
    read_leading_layers(file, defaults.dense_layers, c);
}

void print_grouped_mixture(const ModelConfig& c, nlohmann::ordered_json& json) {
    json["n_routed_experts"] = c.moe.experts;
    json["n_shared_experts"] = c.shared_ffn_hidden_size() / c.expert_ffn_hidden_size();
    json["moe_intermediate_size"] = c.expert_ffn_hidden_size();
    json["norm_topk_prob"] = c.moe.normalize;
    json["routed_scaling_factor"] = shortest(c.moe.scaling);
    json["n_group"] = c.moe.groups;
    json["topk_group"] = c.moe.top_groups;
    json["first_k_dense_replace"] = leading_dense_layers(c);
    print_experts(c, json);
}

void check_grouped_mixture(const ModelConfig& c) {
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

void name_grouped_mixture(TensorNames& names) {
    name_experts(names);
    names.correction_bias = "mlp.gate.e_score_correction_bias";
    names.shared_expert = "mlp.shared_experts.";
}

}  // namespace vocabpipe
