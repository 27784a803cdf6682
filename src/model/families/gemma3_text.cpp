// SPDX-License-Identifier: Apache-2.0
// The text model of Gemma 3 (Gemma Team 2025, arXiv 2503.19786): Gemma 2 with norms of the heads of
// q and k instead of soft-capped scores, and a window in five of six layers, whose rotary positions
// have their own base.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/rope_keys.hpp"
#include "src/model/config_json/rotary_share.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/gemma.hpp"
#include "src/model/families/gemma_keys.hpp"
#include "src/model/families/rotary_decoder.hpp"

namespace vocabpipe {

namespace {

// As published, and transformers' defaults.
constexpr double kTheta = 1e6;
constexpr double kWindowedTheta = 1e4;
constexpr int64_t kPattern = 6;

/// All layers but the last of each `pattern`.
HasWindow in_pattern(int64_t pattern) {
    return [pattern](int layer) { return (layer + 1) % pattern != 0; };
}

void set_gemma3(ModelConfig& c) {
    set_any_gemma(c);
    c.post_norms = true;
    c.qk_norm = true;
    c.rope.theta = kTheta;
    c.windowed_rope = Rope{.theta = kWindowedTheta};
    set_windows(c, c.sliding_window > 0 ? c.sliding_window : kDefaultWindow, in_pattern(kPattern));
}

void read_gemma3(const ConfigValues& file, ModelConfig& c) {
    read_decoder_sizes(file, c);
    read_newer_gemma(file, c);
    if (const auto cap = file.given("attn_logit_softcapping")) {
        cap->fail("scores of " + c.family +
                  " are not soft-capped, and transformers passes over the number; remove it");
    }
    c.logit_softcap = read_softcap(file, "final_logit_softcapping", 0);
    const auto pattern = file.given("sliding_window_pattern");
    read_layer_types(file, read_window(file), "",
                     in_pattern(pattern ? pattern->integer(1, INT32_MAX) : kPattern), c);
    refuse_rotary_share(file);
    const RopesOfLayers ropes =
        read_ropes_of_layers(file.json(), c.max_position_embeddings,
                             {.full = {.theta = kTheta}, .windowed = {.theta = kWindowedTheta}});
    c.rope = ropes.full;
    c.windowed_rope = ropes.windowed;
}

void print_gemma3(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_newer_gemma(c, json);
    // Next to rope_theta and rope_scaling, transformers 5 also reads this older key.
    json["rope_local_base_freq"] = c.windowed_rope.value_or(c.rope).theta;
}

}  // namespace

ModelFamily families::gemma3_text() {
    return {.name = "gemma3_text",
            .architecture = "Gemma3ForCausalLM",
            .keys = {.activation = "hidden_activation"},
            .defaults = {.positions = 131072,
                         .activation = "gelu_pytorch_tanh",
                         .kv_heads = 4,
                         .head_size = 256,
                         .tied = true},
            .switches = {{"attention_bias"}},
            .tensors = names_of_newer_gemmas(),
            .no_weights = {kRotaryFrequencies},
            .set = set_gemma3,
            .read = read_gemma3,
            .print = print_gemma3};
}

}  // namespace vocabpipe
