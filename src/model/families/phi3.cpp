// SPDX-License-Identifier: Apache-2.0
// Phi-3 and Phi-4 (Abdin et al. 2024, arXiv 2404.14219 and 2412.08905): Llama whose files keep q, k
// and v in one tensor, and gate and up in another, with a window in all layers or in none.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/rotary_decoder.hpp"

namespace vocabpipe {

namespace {

bool each_layer(int /*layer*/) {
    return true;
}

void set_phi3(ModelConfig& c) {
    set_rotary_decoder(c);
    c.norm_epsilon = 1e-5F;  // as published
    set_windows(c, c.sliding_window, each_layer);
}

void read_phi3(const ConfigValues& file, ModelConfig& c) {
    read_rotary_decoder(file, c);
    if (c.rope.scaling != RopeScaling::none) {
        const char* const key = file.given("rope_scaling") ? "rope_scaling" : "rope_parameters";
        file.json().at(key).fail("stretched rotary positions of " + c.family +
                                 " are not computed by this program; its rope_type must be "
                                 "default");
    }
    c.activation = read_activation(file, kGateNames);
    set_windows(c, file.size("sliding_window", 0, 0, kMostPositions), each_layer);
}

void print_phi3(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, {}, json);
    json["resid_pdrop"] = 0.0;
    json["embd_pdrop"] = 0.0;
    json["sliding_window"] = nullptr;
    if (!c.windowed.empty()) json["sliding_window"] = c.sliding_window;
    print_no_padding(json);
}

TensorNames phi3_names() {
    TensorNames names = rotary_decoder_names();
    names.qkv_parts.clear();
    names.fc_parts.clear();
    return names;
}

}  // namespace

ModelFamily families::phi3() {
    return {.name = "phi3",
            .architecture = "Phi3ForCausalLM",
            .defaults = {.positions = 4096, .epsilon = 1e-5},
            .tensors = phi3_names(),
            .no_weights = {kRotaryFrequencies},
            .set = set_phi3,
            .read = read_phi3,
            .print = print_phi3};
}

}  // namespace vocabpipe
