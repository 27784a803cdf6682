// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V3 (arXiv 2412.19437): multi-head latent attention, and a mixture of experts after the
// first layers. R1 is the same model. Files keep the columns of rotary positions behind those
// without, pair by pair; src/model/blocks/layer_options.cpp brings them into our order.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/rope_keys.hpp"
#include "src/model/config_json/rotary_share.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/grouped_mixture.hpp"
#include "src/model/families/rotary_decoder.hpp"
#include "src/model/yarn.hpp"
#include "vocabpipe/error.hpp"

#include <nlohmann/json.hpp>

#include <cmath>
#include <string>

namespace vocabpipe {

namespace {

// transformers' defaults
constexpr GroupedMixtureDefaults kMixture{.experts = 256,
                                          .per_token = 8,
                                          .shared = 1,
                                          .expert_size = 2048,
                                          .normalize = true,
                                          .scaling = 2.5,
                                          .groups = 8,
                                          .top_groups = 4,
                                          .dense_layers = 3};
constexpr LatentConfig kLatent{
    .kv_rank = 512, .q_rank = 1536, .key_size = 128, .rope_size = 64, .value_size = 128};
// Megatron's defaults of the flags, without a latent of q
constexpr LatentConfig kLatentOfFlags{
    .kv_rank = 32, .key_size = 128, .rope_size = 64, .value_size = 128};

/// For sizes that no flag sets.
void set_default(int64_t& size, int64_t otherwise) {
    if (size == 0) size = otherwise;
}

void set_deepseek_v3(ModelConfig& c) {
    set_rotary_decoder(c);
    set_grouped_mixture(c);
    set_default(c.latent.kv_rank, kLatentOfFlags.kv_rank);
    set_default(c.latent.key_size, kLatentOfFlags.key_size);
    set_default(c.latent.rope_size, kLatentOfFlags.rope_size);
    set_default(c.latent.value_size, kLatentOfFlags.value_size);
}

void read_latents(const ConfigValues& file, ModelConfig& c) {
    LatentConfig& latent = c.latent;
    const auto size = [&](const char* key, int64_t otherwise, int64_t most) {
        return file.json().has(key) ? file.json().at(key).integer(1, most) : otherwise;
    };
    latent.kv_rank = size("kv_lora_rank", kLatent.kv_rank, kWidest);
    latent.q_rank = file.size("q_lora_rank", kLatent.q_rank, 0, kWidest);
    latent.key_size = size("qk_nope_head_dim", kLatent.key_size, kMostHeads);
    latent.rope_size = size("qk_rope_head_dim", kLatent.rope_size, kMostHeads);
    latent.value_size = size("v_head_dim", kLatent.value_size, kMostHeads);
    if (latent.rope_size % 2 != 0) {
        file.json().at("qk_rope_head_dim").fail("rotary positions need an even number of columns");
    }
    // transformers takes the columns of its rotary table from it.
    if (const auto channels = file.given("head_dim")) {
        if (channels->integer(1, kMostHeads) != latent.rope_size) {
            channels->fail("must be that of qk_rope_head_dim, " + std::to_string(latent.rope_size) +
                           "; remove the key");
        }
    }
}

/// Scores have YaRN's factor twice; cos and sin have the quotient of mscale and mscale_all_dim.
float attention_scale(const ModelConfig& c) {
    const Rope& rope = c.rope;
    if (rope.mscale_all_dim == 0 || rope.factor <= 1) return 0;
    const double stretched = yarn_mscale(rope.factor, rope.mscale_all_dim);
    return static_cast<float>(stretched * stretched /
                              std::sqrt(static_cast<double>(c.head_size())));
}

void read_deepseek_v3(const ConfigValues& file, ModelConfig& c) {
    c.max_position_embeddings =
        file.size(file.keys().positions, file.defaults().positions, 0, kMostPositions);
    c.ffn_hidden_size = file.width(file.keys().ffn);
    const int64_t heads = c.num_attention_heads;
    if (file.size("num_key_value_heads", file.defaults().kv_heads, heads, kMostHeads) != heads) {
        file.json().fail("num_key_value_heads must be num_attention_heads, " +
                         std::to_string(heads) + ": every head has keys of its own");
    }
    if (file.flag("attention_bias", false)) {
        file.json().at("attention_bias").fail("true is not supported for this family");
    }
    read_latents(file, c);
    c.rope = read_rope(file.json(), c.max_position_embeddings, file.defaults().rope_theta);
    refuse_rotary_share(file);
    c.attention_scale = attention_scale(c);
    c.activation = read_activation(file, kGateNames);
    read_grouped_mixture(file, kMixture, c);
}

void print_deepseek_v3(const ModelConfig& c, nlohmann::ordered_json& json) {
    json["num_key_value_heads"] = c.num_attention_heads;
    json["kv_lora_rank"] = c.latent.kv_rank;
    json["q_lora_rank"] = nullptr;
    if (c.latent.q_rank > 0) json["q_lora_rank"] = c.latent.q_rank;
    json["qk_nope_head_dim"] = c.latent.key_size;
    json["qk_rope_head_dim"] = c.latent.rope_size;
    json["v_head_dim"] = c.latent.value_size;
    print_rope(c.rope, json);
    print_switches(c, json);
    json["attention_bias"] = false;
    json["attention_dropout"] = 0.0;
    print_grouped_mixture(c, json);
    if (c.mtp_num_layers == 0) json[kPredictedKey] = 0;  // transformers' default is 1
    print_no_padding(json);
}

void check_deepseek_v3(const ModelConfig& c) {
    check_grouped_mixture(c);
    const auto refuse = [&](bool wrong, const std::string& flag, int64_t value,
                            const std::string& remedy) {
        if (!wrong) return;
        throw UsageError(flag + " " + std::to_string(value) + ": --model-type " + c.family + " " +
                         remedy);
    };
    refuse(c.kv_channels != 0, "--kv-channels", c.kv_channels,
           "has heads of other sizes; use --qk-head-dim, --qk-pos-emb-head-dim and --v-head-dim");
    refuse(c.kv_heads() != c.num_attention_heads, "--num-query-groups", c.num_query_groups,
           "has keys of its own for every head; remove the flag");
    refuse(c.latent.rope_size % 2 != 0, "--qk-pos-emb-head-dim", c.latent.rope_size,
           "has pairs of columns; it must be even");
}

TensorNames deepseek_v3_names() {
    TensorNames names = rotary_decoder_names();
    name_grouped_mixture(names);
    names.qkv = {};
    names.qkv_parts = {};
    names.q_norm = names.k_norm = names.sinks = {};
    names.q = "self_attn.q_proj";
    names.q_down = "self_attn.q_a_proj";
    names.q_down_norm = "self_attn.q_a_layernorm";
    names.q_up = "self_attn.q_b_proj";
    names.kv_down = "self_attn.kv_a_proj_with_mqa";
    names.kv_down_norm = "self_attn.kv_a_layernorm";
    names.kv_up = "self_attn.kv_b_proj";
    names.qkv_down = "self_attn.qkv_a_proj";
    return names;
}

}  // namespace

ModelFamily families::deepseek_v3() {
    return {
        .name = "deepseek_v3",
        .architecture = "DeepseekV3ForCausalLM",
        .defaults = {.positions = 4096, .kv_heads = 128},
        .switches = {{.key = "rope_interleave", .otherwise = true}},
        .tensors = deepseek_v3_names(),
        .no_weights = {kRotaryFrequencies},
        .parts =
            MegatronParts{
                .swiglu = true, .rms_norm = true, .rope = true, .experts = true, .latents = true},
        .set = set_deepseek_v3,
        .read = read_deepseek_v3,
        .print = print_deepseek_v3,
        .check = check_deepseek_v3};
}

}  // namespace vocabpipe
