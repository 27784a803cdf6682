// SPDX-License-Identifier: Apache-2.0
#include "src/model/config/field_groups.hpp"
#include "src/model/config_json/config_values.hpp"
#include "src/model/config_json/rope_keys.hpp"
#include "src/model/families/families.hpp"

#include <nlohmann/json.hpp>

namespace vocabpipe {

namespace {

std::string number(double value) {
    return nlohmann::json(value).dump();
}

std::string scaling_text(const Rope& rope) {
    nlohmann::ordered_json json;
    print_rope(rope, json);
    return json["rope_scaling"].dump();
}

std::string activation_text(kernels::Activation activation) {
    switch (activation) {
        case kernels::Activation::silu:
            return "silu";
        case kernels::Activation::gelu:
            return "gelu";
        case kernels::Activation::gelu_tanh:
            break;
    }
    return "GELU's tanh form";
}

std::string windows_text(const ModelConfig& m) {
    const std::string layers = layers_text(m, [&m](int layer) { return m.window(layer) > 0; });
    return layers.empty() ? "no window"
                          : "a window of " + std::to_string(m.sliding_window) + " in " + layers;
}

std::string layers_without_rope(const ModelConfig& m) {
    const std::string layers = layers_text(m, [&m](int layer) { return !m.has_rope(layer); });
    return layers.empty() ? "no layer" : layers;
}

/// For a value that only models with rotary positions have.
template <typename Text>
std::function<std::string()> of_rotary(const ModelConfig& m, const Text& text) {
    return [&m, text] { return m.learned_positions ? std::string() : text(); };
}

/// For a size that only models with latent attention have.
std::function<std::string()> of_latents(const ModelConfig& m, const int64_t& size) {
    return [&m, &size] { return m.has_latents() ? std::to_string(size) : std::string(); };
}

ConfigKeys keys_of(const ModelConfig& m) {
    const ModelFamily* const family = find_family(m.family);
    return family != nullptr ? family->keys : ConfigKeys();
}

}  // namespace

std::vector<ModelField> size_fields(ModelConfig& m) {
    const ConfigKeys keys = keys_of(m);
    const auto most_heads = static_cast<double>(kMostHeads);
    const auto widest = static_cast<double>(kWidest);
    return {
        {.member = "family",
         .key = "model_type",
         .flag = {.names = "--model-type",
                  .value = &m.family,
                  .help = "Model family: " + known_families(),
                  .unit = "NAME",
                  .choices = model_families(),
                  .free = true,  // set_family() names the nearest one
                  .unset = "set by the flags below",
                  .meaning = [&m] { return m.family; }}},
        {.member = "num_layers",
         .key = keys.layers,
         .flag = {.names = "--num-layers",
                  .value = &m.num_layers,
                  .help = "Number of transformer layers",
                  .unit = "LAYERS",
                  .range = between(1, UINT16_MAX)}},
        {.member = "mtp_num_layers",
         .key = kPredictedKey,
         .flag = {.names = "--mtp-num-layers",
                  .value = &m.mtp_num_layers,
                  .help = "Depths of multi-token prediction: layers that predict the tokens after "
                          "the next one, as in DeepSeek-V3",
                  .unit = "LAYERS",
                  .range = between(0, kMostDepths),
                  .unset = "none",
                  .absent = 0}},
        {.member = "hidden_size",
         .key = keys.hidden,
         .flag = {.names = "--hidden-size",
                  .value = &m.hidden_size,
                  .help = "Hidden size h",
                  .unit = "N",
                  .range = between(1, widest)}},
        {.member = "ffn_hidden_size",
         .key = keys.ffn,
         .flag = {.names = "--ffn-hidden-size",
                  .value = &m.ffn_hidden_size,
                  .help = "Feed-forward hidden size",
                  .unit = "N",
                  .range = between(1, widest),
                  .unset = "4 h; with a gate, 8 h / 3 rounded down to a multiple of 64"}},
        {.member = "num_attention_heads",
         .key = keys.heads,
         .flag = {.names = "--num-attention-heads",
                  .value = &m.num_attention_heads,
                  .help = "Number of attention heads",
                  .unit = "HEADS",
                  .range = between(1, most_heads)}},
        {.member = "num_query_groups",
         .key = "num_key_value_heads",
         .flag = {.names = "--num-query-groups",
                  .value = &m.num_query_groups,
                  .help = "Number of key/value heads",
                  .unit = "HEADS",
                  .range = between(1, most_heads),
                  .unset = "the number of attention heads",
                  .absent = 0},
         .text = [&m] { return std::to_string(m.kv_heads()); }},
        {.member = "kv_channels",
         .key = "head_dim",
         .flag = {.names = "--kv-channels",
                  .value = &m.kv_channels,
                  .help = "Size of an attention head",
                  .unit = "N",
                  .range = between(1, most_heads),
                  .unset = "hidden size / attention heads",
                  .absent = 0},
         .text = [&m] { return std::to_string(m.head_size()); }},
        {.member = "latent.kv_rank",
         .key = "kv_lora_rank",
         .flag = {.names = "--kv-lora-rank",
                  .value = &m.latent.kv_rank,
                  .help = "Size of the latent of keys and values (deepseek_v3)",
                  .unit = "N",
                  .range = between(1, widest),
                  .unset = "32; none for a family without latent attention",
                  .absent = 0},
         .text = of_latents(m, m.latent.kv_rank)},
        {.member = "latent.q_rank",
         .key = "q_lora_rank",
         .flag = {.names = "--q-lora-rank",
                  .value = &m.latent.q_rank,
                  .help = "Size of the latent of queries (deepseek_v3)",
                  .unit = "N",
                  .range = between(1, widest),
                  .unset = "no such latent",
                  .absent = 0},
         .text = of_latents(m, m.latent.q_rank)},
        {.member = "latent.key_size",
         .key = "qk_nope_head_dim",
         .flag = {.names = "--qk-head-dim",
                  .value = &m.latent.key_size,
                  .help = "Columns of a head of queries and keys without rotary positions "
                          "(deepseek_v3)",
                  .unit = "N",
                  .range = between(1, most_heads),
                  .unset = "128",
                  .absent = 0},
         .text = of_latents(m, m.latent.key_size)},
        {.member = "latent.rope_size",
         .key = "qk_rope_head_dim",
         .flag = {.names = "--qk-pos-emb-head-dim",
                  .value = &m.latent.rope_size,
                  .help = "Columns of a head of queries and keys with rotary positions "
                          "(deepseek_v3)",
                  .unit = "N",
                  .range = between(1, most_heads),
                  .unset = "64",
                  .absent = 0},
         .text = of_latents(m, m.latent.rope_size)},
        {.member = "latent.value_size",
         .key = "v_head_dim",
         .flag = {.names = "--v-head-dim",
                  .value = &m.latent.value_size,
                  .help = "Columns of a head of values (deepseek_v3)",
                  .unit = "N",
                  .range = between(1, most_heads),
                  .unset = "128",
                  .absent = 0},
         .text = of_latents(m, m.latent.value_size)},
        {.member = "sliding_window",
         .key = "sliding_window",
         .flag = {.names = "--sliding-window",
                  .value = &m.sliding_window,
                  .help = "Attention window of the layers that have one (gemma2, gemma3_text, "
                          "mistral, phi3)",
                  .unit = "TOKENS",
                  .range = between(1, INT32_MAX),
                  .unset = "4096; none for phi3",
                  .absent = 0},
         .text = [&m] { return m.windowed.empty() ? "" : std::to_string(m.sliding_window); }},
        {.member = "max_position_embeddings",
         .key = keys.positions,
         .flag = {.names = "--max-position-embeddings",
                  .value = &m.max_position_embeddings,
                  .help = "Learned positions, or the length that a model with rotary ones is made "
                          "for, which does not limit --seq-length",
                  .unit = "TOKENS",
                  .range = between(1, INT32_MAX),
                  .unset =
                      "the sequence length, or with rotary positions that of the loaded model"}},
        {.member = "vocab_size",
         .key = "vocab_size",
         .flag = {.names = "--vocab-size",
                  .value = &m.vocab_size,
                  .help = "Vocabulary size V, without padding",
                  .unit = "ROWS",
                  .range = between(1, INT32_MAX)}},
        {.member = "gated",
         .flag = {.names = "--swiglu",
                  .value = &m.gated,
                  .help =
                      "With --normalization RMSNorm and --position-embedding-type rope: same as "
                      "--model-type llama; with --num-experts, too: mixtral",
                  .ranks = RanksCompare::nothing}},
        {.member = "normalization",
         .flag = {.names = "--normalization",
                  .help = "Type of norm",
                  .unit = "NAME",
                  .choices = {"LayerNorm", "RMSNorm"},
                  .unset = "set by the family",
                  .ranks = RanksCompare::nothing},
         .text =
             [&m] { return m.normalization == Normalization::rms_norm ? "RMSNorm" : "LayerNorm"; }},
        {.member = "learned_positions",
         .flag = {.names = "--position-embedding-type",
                  .help = "Type of position embedding",
                  .unit = "NAME",
                  .choices = {"learned_absolute", "rope"},
                  .unset = "set by the family",
                  .ranks = RanksCompare::nothing},
         .text = [&m] { return m.learned_positions ? "learned_absolute" : "rope"; }},
        {.member = "softmax_type",
         .key = kSoftmaxTypeKey,
         .flag = {.names = "--softmax-type",
                  .value = named(&m.softmax_type, softmax_type_from),
                  .help = "Softmax of attention: over the scores of keys, or with a score more per "
                          "head, which is learnt (attention sinks)",
                  .unit = "NAME",
                  .choices = {"vanilla", "learnable"}}},
        {.member = "norm_epsilon",
         .key = keys.epsilon,
         .flag = {.names = "--norm-epsilon",
                  .value = &m.norm_epsilon,
                  .help = "Epsilon that norms add to the variance",
                  .unit = "X",
                  .range = above(0),
                  .unset = "set by the family",
                  .meaning = [&m] { return shortest_text(m.norm_epsilon); }},
         .by_family = true},
        {.member = "rope.theta",
         .key = "rope_theta",
         .flag = {.names = "--rotary-base",
                  .value = &m.rope.theta,
                  .help = "Base (theta) of rotary position embeddings",
                  .unit = "X",
                  .range = above(1),
                  .unset = "set by the family",
                  .meaning = [&m] { return shortest_text(m.rope.theta); }},
         .by_family = true,
         .text = of_rotary(m, [&m] { return number(m.rope.theta); })},
        {.member = "rotary_channels",
         .key = "rotary_pct",
         .called = "what rotary positions turn (rotary_pct)",
         .flag = {.names = "--rotary-percent",
                  .help = "Share of every head that rotary positions turn, from 0 to 1 (gpt_neox, "
                          "phi3)",
                  .unit = "X",
                  .range = {.least = 0, .most = 1, .above = true},
                  .unset = "set by the family",
                  .meaning =
                      [&m] {
                          return m.rotary_channels == 0 ? "" : std::to_string(m.rotary_channels);
                      }},
         .text = of_rotary(
             m, [&m] { return std::to_string(m.rotary_dimension()) + " columns of a head"; })},
    };
}

std::vector<ModelField> family_fields(ModelConfig& m) {
    const ConfigKeys keys = keys_of(m);
    return {
        {.member = "tied",
         .key = "tie_word_embeddings",
         .flag = {.names = "--untie-embeddings-and-output-weights",
                  .value = &m.tied,
                  .help = "Give the output layer its own weight",
                  .meaning = [&m] { return std::string(m.tied ? "" : "given"); }},
         .remedy =
             [&m] {
                 return std::string(m.tied ? "remove" : "add") +
                        " --untie-embeddings-and-output-weights";
             }},
        field_of("norm_weight_offset", &m.norm_weight_offset),
        field_of("pre_norms", &m.pre_norms),
        field_of("post_norms", &m.post_norms),
        {.member = "latent.interleaved",
         .key = "rope_interleave",
         .flag = {.value = &m.latent.interleaved},
         .text = [&m] { return !m.has_latents()       ? ""
                               : m.latent.interleaved ? "true"
                                                      : "false"; }},
        field_of("qk_norm", &m.qk_norm),
        field_of("qk_norm_by_head", &m.qk_norm_by_head),
        field_of("parallel_residual", &m.parallel_residual, "use_parallel_residual"),
        {.member = "activation",
         .key = keys.activation,
         .text = [&m] { return activation_text(m.activation); }},
        field_of("qkv_bias", &m.qkv_bias, "attention_bias"),
        field_of("attention_output_bias", &m.attention_output_bias, "attention_bias"),
        field_of("mlp_bias", &m.mlp_bias, "mlp_bias"),
        {.member = "rope",
         .key = "rope_scaling",
         .text = of_rotary(m, [&m] { return scaling_text(m.rope); })},
        {.member = "windowed_rope",
         .key = "rope_local_base_freq",
         .text = of_rotary(m, [&m] { return number(m.windowed_rope.value_or(m.rope).theta); })},
        {.member = "roped",
         .key = "no_rope_layers",
         .called = "what has no rotary positions (no_rope_layers)",
         .scope = FieldScope::layer,
         .text = of_rotary(m, [&m] { return layers_without_rope(m); })},
        field_of("attention_softcap", &m.attention_softcap, "attn_logit_softcapping"),
        field_of("logit_softcap", &m.logit_softcap, "final_logit_softcapping"),
        {.member = "attention_scale",
         .key = "query_pre_attn_scalar",
         .called = "the scale of attention (query_pre_attn_scalar)",
         .flag = {.value = &m.attention_scale}},
        field_of("embedding_scale", &m.embedding_scale),
        {.member = "windowed",
         .key = "layer_types",
         .called = "attention (sliding_window, layer_types)",
         .scope = FieldScope::layer,
         .text = [&m] { return windows_text(m); }},
    };
}

}  // namespace vocabpipe
