// SPDX-License-Identifier: Apache-2.0
#include "src/model/config/field_groups.hpp"
#include "src/model/config_json/config_values.hpp"
#include "src/support/joined.hpp"

namespace vocabpipe {

namespace {

/// In the notation of --moe-layer-freq; empty: all layers.
std::string notation_of_layers(const std::vector<bool>& layers) {
    return joined(layers, ",");
}

}  // namespace

std::vector<ModelField> expert_fields(ModelConfig& m) {
    const auto most_experts = static_cast<double>(kMostExperts);
    const auto widest = static_cast<double>(kWidest);
    MoeConfig& e = m.moe;
    std::vector<ModelField> fields{
        {.member = "moe.experts",
         .key = "num_experts",
         .called = "the number of experts",
         .flag =
             {.names = "--num-experts",
              .value = &e.experts,
              .help =
                  "Experts of a layer (deepseek_v3, dots1, mixtral, olmoe, qwen2_moe, qwen3_moe)",
              .unit = "EXPERTS",
              .range = between(1, most_experts),
              .unset = "8; none for a family without experts",
              .absent = 0}},
        {.member = "moe.top_k",
         .key = "num_experts_per_tok",
         .flag = {.names = "--moe-router-topk",
                  .value = &e.top_k,
                  .help = "Experts of a token",
                  .unit = "EXPERTS",
                  .range = between(1, most_experts)}},
        {.member = "moe.ffn_hidden_size",
         .key = "moe_intermediate_size",
         .called = "the size of experts",
         .flag = {.names = "--moe-ffn-hidden-size",
                  .value = &e.ffn_hidden_size,
                  .help = "Feed-forward hidden size of an expert (deepseek_v3, dots1, qwen2_moe, "
                          "qwen3_moe)",
                  .unit = "N",
                  .range = between(1, widest),
                  .unset = "the feed-forward hidden size",
                  .absent = 0},
         .text = [&m] { return std::to_string(m.expert_ffn_hidden_size()); }},
        {.member = "moe.shared_ffn_hidden_size",
         .key = "shared_expert_intermediate_size",
         .called = "the size of shared experts",
         .flag = {.names = "--moe-shared-expert-intermediate-size",
                  .value = &e.shared_ffn_hidden_size,
                  .help = "Feed-forward hidden size of the experts that all tokens share, together "
                          "(deepseek_v3, dots1, qwen2_moe)",
                  .unit = "N",
                  .range = between(1, widest),
                  .unset = "the feed-forward hidden size; deepseek_v3, dots1: that of one expert",
                  .absent = 0},
         .text = [&m] { return std::to_string(m.shared_ffn_hidden_size()); }},
        {.member = "moe.sparse",
         .key = "mlp_only_layers",
         .called = "what has experts (mlp_only_layers)",
         .scope = FieldScope::layer,
         .flag = {.names = "--moe-layer-freq",
                  .help = "Which layers have experts (deepseek_v3, dots1, qwen2_moe, qwen3_moe): N "
                          "for the first of every N, or a 1 or 0 for each layer, as in 0,1,1",
                  .unit = "LAYERS",
                  .unset = "all layers",
                  .meaning = [&e] { return notation_of_layers(e.sparse); }},
         .text = [&m] { return layers_text(m, [&m](int i) { return m.moe.in_layer(i); }); }},
        {.member = "moe.normalize",
         .key = "norm_topk_prob",
         .flag = {.names = "--moe-router-pre-softmax",
                  .value = &e.normalize,
                  .help = "Weight experts by their score among all experts, instead of among those "
                          "that the token chose (not mixtral)",
                  .meaning = [&e] { return std::string(e.normalize ? "" : "given"); }}},
        {.member = "moe.score",
         .key = "scoring_func",
         .flag = {.names = "--moe-router-score-function",
                  .help = "What makes scores of a router's logits; sigmoid: deepseek_v3, dots1",
                  .unit = "NAME",
                  .choices = {"softmax", "sigmoid"},
                  .unset = "set by the family",
                  .ranks = RanksCompare::nothing},
         .text = [&e] { return e.score == kernels::RouterScore::sigmoid ? "sigmoid" : "softmax"; }},
        {.member = "moe.groups",
         .key = "n_group",
         .flag = {.names = "--moe-router-num-groups",
                  .value = &e.groups,
                  .help = "Groups of neighboring experts, of which a token chooses some first "
                          "(deepseek_v3, dots1)",
                  .unit = "GROUPS",
                  .range = between(1, most_experts)}},
        {.member = "moe.top_groups",
         .key = "topk_group",
         .flag = {.names = "--moe-router-group-topk",
                  .value = &e.top_groups,
                  .help = "Groups that a token chooses its experts from: those whose two best "
                          "scores add up to most (deepseek_v3, dots1)",
                  .unit = "GROUPS",
                  .range = between(1, most_experts)}},
        {.member = "moe.scaling",
         .key = "routed_scaling_factor",
         .flag = {.names = "--moe-router-topk-scaling-factor",
                  .value = &e.scaling,
                  .help =
                      "What a token's weights of experts are multiplied by (deepseek_v3, dots1)",
                  .unit = "X",
                  .range = above(0)}},
        field_of("moe.shared_expert", &e.shared_expert),
        field_of("moe.shared_gate", &e.shared_gate),
        field_of("moe.correction_bias", &e.correction_bias),
    };
    for (ModelField& field : fields) {  // a model without experts has nothing to compare
        const auto text = field.text ? field.text : [field] { return field.value_text(); };
        if (field.member == "moe.experts") continue;
        field.text = [&e, text] { return e.experts == 0 ? std::string() : text(); };
    }
    return fields;
}

}  // namespace vocabpipe
