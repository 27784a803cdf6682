// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/lora_keys.hpp"

#include "src/model/config_json/config_values.hpp"
#include "src/model/config_json/decoder_keys.hpp"

#include <cstddef>

namespace vocabpipe {

namespace {

constexpr size_t kMostTargets = 1000;
constexpr double kLargestAlpha = 1e30;

std::vector<std::string> read_targets(const StrictJson& json) {
    std::vector<std::string> targets;
    if (!json.is_array()) {
        if (json.text() == kAllLinear) return {};
        json.fail("a regular expression is not supported; list the names of the layers");
    }
    for (const StrictJson& one : json.items(kMostTargets)) targets.push_back(one.text());
    if (targets.empty()) json.fail("must not be empty; list the names of the layers");
    return targets;
}

}  // namespace

LoraConfig read_lora(const StrictJson& json) {
    LoraConfig lora{.rank = json.at("r").integer(1, kWidest),
                    .alpha = static_cast<float>(json.at("lora_alpha").number(0, kLargestAlpha)),
                    .target_modules = read_targets(json.at("target_modules"))};
    if (lora.alpha == 0) json.at("lora_alpha").fail("must be above 0");
    return lora;
}

nlohmann::ordered_json print_lora(const LoraConfig& lora) {
    nlohmann::ordered_json json;
    json["r"] = lora.rank;
    json["lora_alpha"] = lora.alpha == 0 ? static_cast<double>(lora.rank) : shortest(lora.alpha);
    json["target_modules"] = kAllLinear;
    if (!lora.target_modules.empty()) json["target_modules"] = lora.target_modules;
    return json;
}

}  // namespace vocabpipe
