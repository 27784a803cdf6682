// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/rope_keys.hpp"

#include "src/model/config_json/rotary_share.hpp"
#include "src/support/joined.hpp"

#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

namespace {

constexpr double kLeastPositive = 1e-300;  // least positive value
constexpr std::string_view kFullLayers = "full_attention";
constexpr std::string_view kWindowedLayers = "sliding_attention";
constexpr size_t kMostPairs = size_t{1} << 15;  // per head
constexpr int64_t kMostRopePositions = int64_t{1} << 31;

std::optional<StrictJson> given(const StrictJson& json, std::string_view key) {
    if (!json.has(key) || json.at(key).is_null()) return std::nullopt;
    return json.at(key);
}

double number(const StrictJson& json, std::string_view key, double least, double otherwise) {
    const auto value = given(json, key);
    return value ? value->number(least) : otherwise;
}

/// "default, linear, ..."
std::string names_of(std::span<const NamedScaling> types) {
    return joined(types, ", ", &NamedScaling::name);
}

/// Without a type, transformers 5 ignores the other keys, and transformers 4 fails.
void refuse_without_type(const StrictJson& json, std::span<const NamedScaling> types) {
    for (const auto& [key, value] : json.members()) {
        const bool of_every_type = key == "rope_theta" || key == "partial_rotary_factor" ||
                                   key == "original_max_position_embeddings";
        if (of_every_type || value.is_null()) continue;
        value.fail("is set without a rope_type; set rope_type to " + names_of(types) +
                   ", or remove the key");
    }
}

/// The trained length stands with the scaling or at the top of the file; newer versions of
/// transformers prefer the latter, older ones ignore it. So both must be equal.
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
    return "longrope";
}

/// [pair]
std::vector<double> divisors(const StrictJson& list) {
    std::vector<double> values;
    for (const StrictJson& value : list.items(kMostPairs)) {
        values.push_back(value.number(kLeastPositive));
    }
    return values;
}

/// `json`: rope_scaling, rope_parameters or the latter's object for one kind of layers. `theta`:
/// the default base.
Rope read_parameters(const StrictJson& config, const StrictJson& json, int64_t positions,
                     double theta, std::span<const NamedScaling> types) {
    json.only({"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor",
               "original_max_position_embeddings", "low_freq_factor", "high_freq_factor",
               "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate",
               "short_factor", "long_factor",
               // In published files; transformers computes nothing with them.
               "finetuned", "attn_factor", "short_mscale", "long_mscale"});
    Rope rope;
    rope.theta = number(json, "rope_theta", kLeastTheta, theta);
    rope.scaling = read_rope_type(json, types);
    if (rope.scaling == RopeScaling::none) return rope;

    rope.mscale_all_dim = number(json, "mscale_all_dim", 0, 0);
    const bool by_lengths =  // without a factor
        rope.scaling == RopeScaling::yarn || rope.scaling == RopeScaling::longrope;
    if (rope.scaling == RopeScaling::llama3 || by_lengths) {
        rope.original_positions = original_positions(config, json, positions);
    } else if (rope.scaling == RopeScaling::dynamic) {
        rope.original_positions = positions;  // transformers reads no other length here
    }
    const auto factor = given(json, "factor");
    if (!factor && by_lengths) {
        rope.factor = static_cast<double>(positions) / static_cast<double>(rope.original_positions);
    } else {
        rope.factor = json.at("factor").number(kLeastPositive);
    }
    if (rope.scaling == RopeScaling::llama3) {
        rope.low_freq_factor = json.at("low_freq_factor").number(kLeastPositive);
        rope.high_freq_factor = json.at("high_freq_factor").number(kLeastPositive);
        if (rope.high_freq_factor < rope.low_freq_factor) {  // equal, as in Llama 4: a step
            json.at("high_freq_factor").fail("must not be less than low_freq_factor");
        }
    }
    if (by_lengths) rope.attention_factor = number(json, "attention_factor", kLeastPositive, 0);
    if (rope.scaling == RopeScaling::longrope) {
        rope.short_factors = divisors(json.at("short_factor"));
        rope.long_factors = divisors(json.at("long_factor"));
    }
    if (rope.scaling == RopeScaling::yarn) {
        // 0 is the default here, as for transformers.
        const double fast = number(json, "beta_fast", 0, 0);
        const double slow = number(json, "beta_slow", 0, 0);
        if (fast > 0) rope.beta_fast = fast;
        if (slow > 0) rope.beta_slow = slow;
        rope.mscale = number(json, "mscale", 0, 0);

        // null is false, as for transformers.
        const auto truncate = given(json, "truncate");
        rope.truncate = truncate ? truncate->boolean() : !json.has("truncate");
    }
    return rope;
}

/// rope_scaling or rope_parameters, its newer name.
std::optional<StrictJson> scaling_of(const StrictJson& config) {
    const auto scaling = given(config, "rope_scaling");
    const auto parameters = given(config, "rope_parameters");
    if (scaling && parameters) {
        scaling->fail("is set together with rope_parameters, its newer name; keep one of them");
    }
    return scaling ? scaling : parameters;
}

}  // namespace

RopeScaling read_rope_type(const StrictJson& json, std::span<const NamedScaling> types) {
    // If rope_type is present, even as null, `type` is ignored.
    const char* const key = json.has("rope_type") ? "rope_type" : "type";
    if (!json.has(key)) {
        refuse_without_type(json, types);
        return RopeScaling::none;
    }
    const StrictJson type = json.at(key);
    if (type.is_null()) {
        type.fail("is null; set it to " + names_of(types) + ", or remove it with all that " +
                  "belongs to it");
    }
    const auto old_type = given(json, "type");
    if (old_type && type.text() != old_type->text()) {
        type.fail("differs from type; keep one of them");
    }
    for (const auto& [name, scaling] : types) {
        if (type.text() == name) return scaling;
    }
    type.fail("\"" + type.text().substr(0, 40) + "\" is not supported; use " + names_of(types));
}

Rope read_rope(const StrictJson& config, int64_t positions, double theta,
               std::span<const NamedScaling> types) {
    theta = number(config, "rope_theta", kLeastTheta, theta);
    const auto json = scaling_of(config);
    return json ? read_parameters(config, *json, positions, theta, types) : Rope{.theta = theta};
}

RopesOfLayers read_ropes_of_layers(const StrictJson& config, int64_t positions,
                                   const RopesOfLayers& otherwise) {
    const double windowed_theta =
        number(config, "rope_local_base_freq", kLeastTheta, otherwise.windowed.theta);
    const auto json = scaling_of(config);
    if (!json || given(config, "rope_scaling")) {
        return {.full = read_rope(config, positions, otherwise.full.theta),
                .windowed = {.theta = windowed_theta}};
    }
    json->only({kFullLayers, kWindowedLayers});
    const auto of = [&](std::string_view layers, double theta) {
        const auto parameters = given(*json, layers);
        if (parameters) refuse_rotary_share(*parameters);
        return parameters ? read_parameters(config, *parameters, positions, theta, kRopeTypes)
                          : Rope{.theta = theta};
    };
    const RopesOfLayers ropes{
        .full = of(kFullLayers, number(config, "rope_theta", kLeastTheta, otherwise.full.theta)),
        .windowed = of(kWindowedLayers, windowed_theta)};
    if (ropes.windowed.scaling != RopeScaling::none) {
        json->at(kWindowedLayers)
            .fail("layers with a window cannot have scaled positions; rope_type must be default");
    }
    return ropes;
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
    if (rope.original_positions > 0 && rope.scaling != RopeScaling::dynamic) {
        json["original_max_position_embeddings"] = rope.original_positions;
    }
    if (rope.scaling == RopeScaling::longrope) {
        json["short_factor"] = rope.short_factors;
        json["long_factor"] = rope.long_factors;
    }
    if (rope.scaling == RopeScaling::yarn) {
        json["beta_fast"] = rope.beta_fast;
        json["beta_slow"] = rope.beta_slow;
    }
    if (rope.attention_factor > 0) json["attention_factor"] = rope.attention_factor;
    if (rope.mscale_all_dim > 0) json["mscale_all_dim"] = rope.mscale_all_dim;
    if (rope.scaling != RopeScaling::yarn) return;
    if (rope.mscale > 0) json["mscale"] = rope.mscale;
    json["truncate"] = rope.truncate;
}

}  // namespace vocabpipe
