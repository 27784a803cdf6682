// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/unused_rope_keys.hpp"

#include "src/model/config_json/rope_keys.hpp"
#include "src/model/families/families.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <string_view>

namespace vocabpipe {

namespace {

bool is_one_of(std::string_view key, std::initializer_list<std::string_view> keys) {
    return std::ranges::find(keys, key) != keys.end();
}

bool is_used(std::string_view key, RopeScaling scaling) {
    if (is_one_of(key, {"rope_type", "type", "rope_theta", "partial_rotary_factor"})) return true;
    switch (scaling) {
        case RopeScaling::none:
            return false;
        case RopeScaling::linear:
        case RopeScaling::dynamic:
            return key == "factor";
        case RopeScaling::llama3:
            return is_one_of(key, {"factor", "low_freq_factor", "high_freq_factor",
                                   "original_max_position_embeddings"});
        case RopeScaling::yarn:
            return is_one_of(
                key, {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast",
                      "beta_slow", "mscale", "mscale_all_dim", "truncate"});
        case RopeScaling::longrope:
            return is_one_of(key, {"factor", "original_max_position_embeddings", "attention_factor",
                                   "short_factor", "long_factor"});
    }
    return true;
}

void add_unused(const StrictJson& json, const std::string& place,
                std::span<const NamedScaling> types, std::vector<std::string>& lines) {
    const RopeScaling scaling = read_rope_type(json, types);
    const auto named = std::ranges::find(types, scaling, &NamedScaling::scaling);
    for (const auto& [key, value] : json.members()) {
        if (value.is_null() || is_used(key, scaling)) continue;
        lines.push_back(place + "." + key + " is not used with rope_type " +
                        std::string(named->name) + ", as in transformers");
    }
}

}  // namespace

std::vector<std::string> unused_rope_keys(const StrictJson& config) {
    const std::string type = config.at("model_type").text();
    const ModelFamily* const family = find_family(type);
    if (family != nullptr && !family->tensors.positions.empty()) return {};  // learned positions
    const bool phi = type == "phi3";
    const std::span<const NamedScaling> types =
        phi ? std::span<const NamedScaling>(kPhiRopeTypes) : kRopeTypes;
    std::vector<std::string> lines;
    for (const std::string place : {"rope_scaling", "rope_parameters"}) {
        if (!config.has(place) || config.at(place).is_null()) continue;
        const StrictJson json = config.at(place);
        bool of_kinds = false;  // of layers, as in Gemma 3
        for (const std::string kind : {"full_attention", "sliding_attention"}) {
            if (!json.has(kind)) continue;
            of_kinds = true;
            if (!json.at(kind).is_null()) {
                add_unused(json.at(kind), place + "." + kind, types, lines);
            }
        }
        if (!of_kinds) add_unused(json, place, types, lines);
    }
    return lines;
}

}  // namespace vocabpipe
