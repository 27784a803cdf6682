// SPDX-License-Identifier: Apache-2.0
// Gemma 2 (Gemma Team 2024, arXiv 2408.00118): Gemma with norms of the outputs of attention and
// MLP, soft-capped scores and logits, and a window in every other layer.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/gemma.hpp"
#include "src/model/families/gemma_keys.hpp"
#include "src/model/families/rotary_decoder.hpp"

namespace vocabpipe {

namespace {

constexpr float kAttentionSoftcap = 50;
constexpr float kLogitSoftcap = 30;

bool every_other_layer(int layer) {
    return layer % 2 == 0;
}

void set_gemma2(ModelConfig& c) {
    set_any_gemma(c);
    c.post_norms = true;
    c.attention_softcap = kAttentionSoftcap;
    c.logit_softcap = kLogitSoftcap;
    set_windows(c, c.sliding_window > 0 ? c.sliding_window : kDefaultWindow, every_other_layer);
}

void read_gemma2(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    read_newer_gemma(file, c);
    c.attention_softcap = read_softcap(file, "attn_logit_softcapping", kAttentionSoftcap);
    c.logit_softcap = read_softcap(file, "final_logit_softcapping", kLogitSoftcap);
    read_layer_types(file, read_window(file), "", every_other_layer, c);
}

}  // namespace

ModelFamily families::gemma2() {
    return {.name = "gemma2",
            .architecture = "Gemma2ForCausalLM",
            .keys = {.activation = "hidden_activation"},
            .defaults = {.positions = 8192,
                         .activation = "gelu_pytorch_tanh",
                         .kv_heads = 4,
                         .head_size = 256,
                         .tied = true},
            .switches = {{"attention_bias"}},
            .tensors = names_of_newer_gemmas(),
            .no_weights = {kRotaryFrequencies},
            .set = set_gemma2,
            .read = read_gemma2,
            .print = print_newer_gemma};
}

}  // namespace vocabpipe
