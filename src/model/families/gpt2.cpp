// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al. 2019).
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/plain_heads.hpp"

namespace vocabpipe {

namespace {

void read_gpt2(const ConfigValues& file, ModelConfig& c) {
    const char* const positions = file.given("n_positions") ? "n_positions" : "n_ctx";
    c.max_position_embeddings = file.json().at(positions).integer(1, kMostPositions);
    c.ffn_hidden_size = file.given("n_inner") ? file.width("n_inner") : 4 * c.hidden_size;
    c.activation = read_activation(file, kGeluNames);
}

void print_gpt2(const ModelConfig& c, nlohmann::ordered_json& json) {
    if (c.ffn_hidden_size == 4 * c.hidden_size) json["n_inner"] = nullptr;
    if (c.activation == kernels::Activation::gelu_tanh) json["activation_function"] = "gelu_new";
    json["resid_pdrop"] = 0.0;  // this program has no dropout
    json["embd_pdrop"] = 0.0;
    json["attn_pdrop"] = 0.0;
}

}  // namespace

ModelFamily families::gpt2() {
    return {.name = "gpt2",
            .architecture = "GPT2LMHeadModel",
            .keys = {.layers = "n_layer",
                     .hidden = "n_embd",
                     .ffn = "n_inner",
                     .heads = "n_head",
                     .positions = "n_positions",
                     .epsilon = "layer_norm_epsilon",
                     .activation = "activation_function"},
            .defaults = {.activation = "gelu_new", .epsilon = 1e-5, .tied = true},
            .tensors = {.embedding = "transformer.wte",
                        .positions = "transformer.wpe",
                        .layers = "transformer.h.",
                        .final_norm = "transformer.ln_f",
                        .attention_norm = "ln_1",
                        .qkv = "attn.c_attn",
                        .proj = "attn.c_proj",
                        .post_attention_norm = {},
                        .mlp_norm = "ln_2",
                        .fc = "mlp.c_fc",
                        .fc_proj = "mlp.c_proj",
                        .post_mlp_norm = {},
                        .sinks = "attn.sinks",
                        .transposed = true,
                        .body = "transformer."},
            .no_weights = {".attn.bias", ".attn.masked_bias"},
            .parts = MegatronParts{},
            .set = [](ModelConfig& /*has GPT-2's defaults*/) {},
            .read = read_gpt2,
            .print = print_gpt2,
            .check = check_plain_heads};
}

}  // namespace vocabpipe
