// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/rope_keys.hpp"

#include <array>
#include <optional>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

constexpr std::array<std::pair<std::string_view, RopeScaling>, 5> kRopeTypes{{
    {"default", RopeScaling::none},
    {"linear", RopeScaling::linear},
    {"dynamic", RopeScaling::dynamic},
    {"llama3", RopeScaling::llama3},
    {"yarn", RopeScaling::yarn},
}};
constexpr double kLeastPositive = 1e-300;  // of what must be positive
constexpr double kLeastTheta = 1 + 1e-6;   // wavelengths grow with the dimension
constexpr int64_t kMostRopePositions = int64_t{1} << 31;

std::optional<StrictJson> given(const StrictJson& json, std::string_view key) {
    if (!json.has(key) || json.at(key).is_null()) return std::nullopt;
    return json.at(key);
}

double number(const StrictJson& json, std::string_view key, double least, double otherwise) {
    const auto value = given(json, key);
    return value ? value->number(least) : otherwise;
}

void refuse_partial(const StrictJson& json) {
    const auto share = given(json, "partial_rotary_factor");
    if (share && share->number(0) != 1) {
        share->fail("rotary positions on part of a head are not supported; must be 1");
    }
}

RopeScaling type_of(const StrictJson& json) {
    const auto type = given(json, "rope_type");
    const auto old_type = given(json, "type");
    if (!type && !old_type) return RopeScaling::none;
    if (type && old_type && type->text() != old_type->text()) {
        type->fail("differs from type; keep one of them");
    }
    const StrictJson& value = type ? *type : *old_type;
    std::string known;
    for (const auto& [name, scaling] : kRopeTypes) {
        if (value.text() == name) return scaling;
        known += (known.empty() ? "" : ", ") + std::string(name);
    }
    value.fail("\"" + value.text().substr(0, 40) + "\" is not supported; use " + known);
}

/// Given with the scaling, or for the whole model, which goes first for newer versions of
/// transformers and counts nothing for older ones: both must be the same.
int64_t original_positions(const StrictJson& config, const StrictJson& scaling, int64_t otherwise) {
    constexpr const char* kKey = "original_max_position_embeddings";
    const auto inner = given(scaling, kKey);
    const auto outer = given(config, kKey);
    if (!inner && !outer) return otherwise;
    const int64_t value = (inner ? inner : outer)->integer(1, kMostRopePositions);
    if (inner && outer && outer->integer(1, kMostRopePositions) != value) {
        outer->fail("differs from " + std::to_string(value) +
                    ", which is set with the scaling of the positions; keep one of them");
    }
    return value;
}

std::string_view name_of(RopeScaling scaling) {
    for (const auto& [name, value] : kRopeTypes) {
        if (value == scaling) return name;
    }
    return {};
}

}  // namespace

Rope read_rope(const StrictJson& config, int64_t positions) {
    Rope rope;
    refuse_partial(config);
    rope.theta = number(config, "rope_theta", kLeastTheta, rope.theta);
    const auto scaling = given(config, "rope_scaling");
    const auto parameters = given(config, "rope_parameters");
    if (scaling && parameters) {
        scaling->fail("is set together with rope_parameters, its newer name; keep one of them");
    }
    if (!scaling && !parameters) return rope;
    const StrictJson& json = scaling ? *scaling : *parameters;
    json.only({"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor",
               "original_max_position_embeddings", "low_freq_factor", "high_freq_factor",
               "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim",
               "truncate"});
    refuse_partial(json);
    rope.theta = number(json, "rope_theta", kLeastTheta, rope.theta);
    rope.scaling = type_of(json);
    if (rope.scaling == RopeScaling::none) return rope;

    const bool stretched = rope.scaling == RopeScaling::llama3 || rope.scaling == RopeScaling::yarn;
    if (stretched) {
        rope.original_positions = original_positions(config, json, positions);
    }
    const auto factor = given(json, "factor");
    if (!factor && rope.scaling == RopeScaling::yarn) {
        rope.factor = static_cast<double>(positions) / static_cast<double>(rope.original_positions);
    } else {
        rope.factor = json.at("factor").number(kLeastPositive);
    }
    if (rope.scaling == RopeScaling::llama3) {
        rope.low_freq_factor = json.at("low_freq_factor").number(kLeastPositive);
        rope.high_freq_factor = json.at("high_freq_factor").number(kLeastPositive);
        if (rope.high_freq_factor <= rope.low_freq_factor) {
            json.at("high_freq_factor").fail("must be greater than low_freq_factor");
        }
    }
    if (rope.scaling == RopeScaling::yarn) {
        // 0 is the default here, as for transformers.
        const double fast = number(json, "beta_fast", 0, 0);
        const double slow = number(json, "beta_slow", 0, 0);
        if (fast > 0) rope.beta_fast = fast;
        if (slow > 0) rope.beta_slow = slow;
        rope.attention_factor = number(json, "attention_factor", kLeastPositive, 0);
        rope.mscale = number(json, "mscale", 0, 0);
        rope.mscale_all_dim = number(json, "mscale_all_dim", 0, 0);
        const auto truncate = given(json, "truncate");
        rope.truncate = !truncate || truncate->boolean();
    }
    return rope;
}

void print_rope(const Rope& rope, nlohmann::ordered_json& config) {
    config["rope_theta"] = rope.theta;
    if (rope.scaling == RopeScaling::none) {
        config["rope_scaling"] = nullptr;
        return;
    }
    nlohmann::ordered_json& json = config["rope_scaling"];
    json["rope_type"] = name_of(rope.scaling);
    json["factor"] = rope.factor;
    if (rope.scaling == RopeScaling::llama3) {
        json["low_freq_factor"] = rope.low_freq_factor;
        json["high_freq_factor"] = rope.high_freq_factor;
    }
    if (rope.original_positions > 0) {
        json["original_max_position_embeddings"] = rope.original_positions;
    }
    if (rope.scaling != RopeScaling::yarn) return;
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    if (rope.attention_factor > 0) json["attention_factor"] = rope.attention_factor;
    if (rope.mscale > 0) json["mscale"] = rope.mscale;
    if (rope.mscale_all_dim > 0) json["mscale_all_dim"] = rope.mscale_all_dim;
    json["truncate"] = rope.truncate;
}

}  // namespace vocabpipe
