// SPDX-License-Identifier: Apache-2.0
// Gemma (Gemma Team 2024, arXiv 2403.08295).
#include "src/model/families/gemma.hpp"

#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/rotary_decoder.hpp"

#include <array>
#include <cmath>

namespace vocabpipe {

namespace {

/// The first files have "gelu" for its tanh form; transformers reads them in this way, too.
constexpr std::array kGemmaNames{
    NamedActivation{"gelu_pytorch_tanh", kernels::Activation::gelu_tanh},
    NamedActivation{"gelu", kernels::Activation::gelu_tanh},
    NamedActivation{"silu", kernels::Activation::silu}};

void read_gemma(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    c.activation = read_activation(file, kGemmaNames);
}

void print_gemma(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    print_no_padding(json);
}

}  // namespace

void set_any_gemma(ModelConfig& c) {
    set_rotary_decoder(c);
    c.activation = kernels::Activation::gelu_tanh;
    c.norm_weight_offset = 1;
    c.embedding_scale = std::sqrt(static_cast<float>(c.hidden_size));
}

ModelFamily families::gemma() {
    return {.name = "gemma",
            .architecture = "GemmaForCausalLM",
            .defaults = {.positions = 8192,
                         .activation = "gelu_pytorch_tanh",
                         .kv_heads = 16,
                         .head_size = 256,
                         .tied = true},
            .switches = {{"attention_bias"}},
            .tensors = rotary_decoder_names(),
            .no_weights = {kRotaryFrequencies},
            .set = set_any_gemma,
            .read = read_gemma,
            .print = print_gemma};
}

}  // namespace vocabpipe
