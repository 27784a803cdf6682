// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/adapter_config.hpp"

#include "src/model/adapters.hpp"
#include "src/model/config_json/lora_keys.hpp"
#include "src/model/parameters.hpp"
#include "src/support/input_file.hpp"
#include "src/support/strict_json.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace vocabpipe {

namespace {

constexpr const char* kMethod = "LORA";

/// Keys that do not change what adapters compute.
constexpr auto kWithoutEffect = std::to_array<std::string_view>(
    {"auto_mapping", "base_model_name_or_path", "corda_config", "eva_config", "fan_in_fan_out",
     "inference_mode", "loftq_config", "lora_dropout", "megatron_config", "megatron_core",
     "peft_type", "peft_version", "qalora_group_size", "revision", "runtime_config", "task_type"});

/// Refuses initial adapters for which PEFT changes the model itself, such as PiSSA's.
void check_initial(const StrictJson& json) {
    constexpr const char* kKey = "init_lora_weights";
    if (!json.has(kKey) || !json.at(kKey).is_text()) return;
    const std::string how = json.at(kKey).text();
    if (how == "gaussian" || how == "eva" || how == "orthogonal") return;
    json.at(kKey).fail("\"" + how.substr(0, 40) +
                       "\" changes the weights of the model; merge the adapters with PEFT and load "
                       "that model");
}

}  // namespace

LoraConfig load_adapter_config(const std::string& folder) {
    const std::string path = folder + "/" + std::string(kAdapterConfigFile);
    return parse_adapter_config(InputFile(path).text(), path);
}

LoraConfig parse_adapter_config(std::string_view text, const std::string& path) {
    const StrictJson json = StrictJson::parse(text, path);
    if (const std::string method = json.at("peft_type").text(); method != kMethod) {
        json.at("peft_type").fail("\"" + method.substr(0, 40) + "\" is not supported; use LORA");
    }
    const LoraConfig lora = read_lora(json);
    check_initial(json);
    for (const std::string& key : json.unread_keys()) {
        if (std::ranges::find(kWithoutEffect, key) != kWithoutEffect.end()) continue;
        if (json.at(key).is_off()) continue;
        json.at(key).fail("is not supported; merge the adapters with PEFT and load that model");
    }
    return lora;
}

std::string print_adapter_config(const ModelConfig& config) {
    nlohmann::ordered_json json;
    json["peft_type"] = kMethod;
    json["task_type"] = "CAUSAL_LM";
    json["base_model_name_or_path"] = nullptr;
    json.update(print_lora(config.lora));
    if (config.lora.target_modules.empty()) {
        std::vector<std::string> names;
        for (const std::string& module : adapted_modules(config)) {
            std::string name = module.substr(module.rfind('.') + 1);
            if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
        }
        json["target_modules"] = names;
    }
    json["lora_dropout"] = 0.0;
    json["bias"] = "none";
    json["fan_in_fan_out"] = tensor_names(config).transposed;
    json["inference_mode"] = true;
    return json.dump(2) + "\n";
}

}  // namespace vocabpipe
