// SPDX-License-Identifier: Apache-2.0
// Phi-3 and Phi-4 (Abdin et al. 2024, arXiv 2404.14219 and 2412.08905): Llama whose files keep q, k
// and v in one tensor, and gate and up in another, with a window in all layers or in none, and
// rotary positions of a part of every head where the file says so. Its only scaling of positions is
// LongRoPE (Ding et al. 2024, arXiv 2402.13753).
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/rope_keys.hpp"
#include "src/model/config_json/rotary_share.hpp"
#include "src/model/config_json/window_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/model/families/rotary_decoder.hpp"

#include <string>
#include <vector>

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

/// LongRoPE: one divisor for each pair of columns that turn. transformers takes the trained length
/// from outside rope_scaling and ignores the one inside.
void check_divisors(const ConfigValues& file, const ModelConfig& c) {
    constexpr int64_t kShortest = 2;  // its logarithm is a divisor
    (void)file.json().at("original_max_position_embeddings").integer(kShortest, kMostPositions);
    const auto pairs = static_cast<size_t>(c.rotary_size() / 2);
    for (const std::vector<double>& divisors : {c.rope.short_factors, c.rope.long_factors}) {
        if (divisors.size() == pairs) continue;
        file.json().fail("short_factor and long_factor have " +
                         std::to_string(c.rope.short_factors.size()) + " and " +
                         std::to_string(c.rope.long_factors.size()) +
                         " entries; rotary positions of " + std::to_string(c.rotary_size()) +
                         " columns of a head need " + std::to_string(pairs) + " in each");
    }
}

void read_phi3(const ConfigValues& file, ModelConfig& c) {
    read_decoder_sizes(file, c);
    c.rope = read_rope(file.json(), c.max_position_embeddings, file.defaults().rope_theta,
                       kPhiRopeTypes);
    read_rotary_share(file, nullptr, 1, c);
    if (c.rope.scaling == RopeScaling::longrope) check_divisors(file, c);
    c.activation = read_activation(file, kGateNames);
    set_windows(c, file.size("sliding_window", 0, 0, kMostPositions), each_layer);
}

/// Prints only keys that all versions of transformers accept for Phi-3: type, the divisors, and the
/// trained length outside rope_scaling.
void print_longrope(const ModelConfig& c, nlohmann::ordered_json& json) {
    json["original_max_position_embeddings"] = c.rope.original_positions;
    nlohmann::ordered_json& scaling = json["rope_scaling"];
    scaling.erase("original_max_position_embeddings");
    scaling.erase("rope_type");
    scaling["type"] = "longrope";
    const double usual = static_cast<double>(c.max_position_embeddings) /
                         static_cast<double>(c.rope.original_positions);
    if (c.rope.factor == usual) scaling.erase("factor");
}

void print_phi3(const ModelConfig& c, nlohmann::ordered_json& json) {
    print_rotary_decoder(c, json);
    if (c.rope.scaling == RopeScaling::longrope) print_longrope(c, json);
    if (c.rotary_channels > 0) json["partial_rotary_factor"] = rotary_share(c);
    json["resid_pdrop"] = 0.0;
    json["embd_pdrop"] = 0.0;
    print_window(c, json);
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
            .partial_rotary = true,
            .set = set_phi3,
            .read = read_phi3,
            .print = print_phi3};
}

}  // namespace vocabpipe
