// SPDX-License-Identifier: Apache-2.0
// GPT-NeoX (Black et al. 2022, arXiv 2204.06745) and Pythia (Biderman et al. 2023): attention and
// MLP side by side, rotary positions of a part of every head.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/rope_keys.hpp"
#include "src/model/config_json/rotary_share.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/plain_heads.hpp"
#include "src/model/families/rotary_decoder.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

namespace vocabpipe {

namespace {

constexpr double kRotaryShare = 0.25;  // as published, and transformers' default

constexpr std::array kNeoxNames{
    NamedActivation{"gelu", kernels::Activation::gelu},
    NamedActivation{"gelu_new", kernels::Activation::gelu_tanh},
    NamedActivation{"gelu_fast", kernels::Activation::gelu_tanh},
    NamedActivation{"gelu_pytorch_tanh", kernels::Activation::gelu_tanh}};

void set_gpt_neox(ModelConfig& c) {
    c.learned_positions = false;
    c.rotary_channels = std::max<int64_t>(c.head_size() / 8 * 2, 2);  // a quarter, in pairs
    c.parallel_residual = true;
    c.activation = kernels::Activation::gelu;
}

void read_gpt_neox(const ConfigValues& file, ModelConfig& c) {
    const int64_t positions = file.defaults().positions;
    c.max_position_embeddings =
        file.size(file.keys().positions, positions, positions, kMostPositions);
    c.ffn_hidden_size = file.width(file.keys().ffn);
    c.activation = read_activation(file, kNeoxNames);
    const auto base = file.given("rotary_emb_base");
    c.rope = read_rope(file.json(), c.max_position_embeddings,
                       base ? base->number(kLeastTheta) : file.defaults().rope_theta);
    read_rotary_share(file, "rotary_pct", kRotaryShare, c);
    const auto size = file.given("head_dim");  // transformers uses it only for angles
    if (size && size->integer(1, kMostHeads) != c.head_size()) {
        size->fail("must be hidden_size / num_attention_heads in this family");
    }
}

void print_gpt_neox(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rope(c.rope, json);
    json.erase("rope_theta");
    json["rotary_emb_base"] = c.rope.theta;
    json["rotary_pct"] = rotary_share(c);
    print_switches(c, json);
    json["attention_dropout"] = 0.0;
    json["hidden_dropout"] = 0.0;
}

}  // namespace

ModelFamily families::gpt_neox() {
    return {.name = "gpt_neox",
            .architecture = "GPTNeoXForCausalLM",
            .keys = {.epsilon = "layer_norm_eps"},
            .defaults = {.positions = 2048, .activation = "gelu", .epsilon = 1e-5},
            .switches = {{.key = "use_parallel_residual", .otherwise = true},
                         {.key = "attention_bias", .otherwise = true}},
            .tensors = {.embedding = "gpt_neox.embed_in",
                        .positions = {},
                        .layers = "gpt_neox.layers.",
                        .final_norm = "gpt_neox.final_layer_norm",
                        .attention_norm = "input_layernorm",
                        .qkv = "attention.query_key_value",
                        .proj = "attention.dense",
                        .post_attention_norm = {},
                        .mlp_norm = "post_attention_layernorm",
                        .fc = "mlp.dense_h_to_4h",
                        .fc_proj = "mlp.dense_4h_to_h",
                        .post_mlp_norm = {},
                        .sinks = "attention.sinks",
                        .qkv_by_head = true,
                        .body = "gpt_neox.",
                        .output = "embed_out",
                        .newer_output = "lm_head"},
            .no_weights = {".attention.bias", ".attention.masked_bias", kRotaryFrequencies},
            .partial_rotary = true,
            .set = set_gpt_neox,
            .read = read_gpt_neox,
            .print = print_gpt_neox,
            .check = check_plain_heads};
}

}  // namespace vocabpipe
