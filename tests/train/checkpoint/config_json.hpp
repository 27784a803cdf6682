// SPDX-License-Identifier: Apache-2.0
// Texts of config.json, and what they are read as.
#pragma once

#include "src/model/config_json/model_config_json.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>

namespace vocabpipe::testing {

using nlohmann::json;

[[nodiscard]] inline json gpt2() {
    return {{"model_type", "gpt2"}, {"vocab_size", 50257}, {"n_positions", 1024},
            {"n_embd", 768},        {"n_layer", 12},       {"n_head", 12}};
}

/// With the keys that every other family has.
[[nodiscard]] inline json rotary(const std::string& model_type) {
    return {{"model_type", model_type}, {"vocab_size", 32003},
            {"hidden_size", 96},        {"intermediate_size", 200},
            {"num_hidden_layers", 4},   {"num_attention_heads", 8},
            {"num_key_value_heads", 4}, {"max_position_embeddings", 4096}};
}

/// A config.json of 4 layers of any family that has rotary positions.
[[nodiscard]] inline json any_rotary(const std::string& family) {
    json file = rotary(family);
    if (family == "deepseek_v3") {
        file["num_key_value_heads"] = file["num_attention_heads"];
        file["n_group"] = file["topk_group"] = 1;
    } else if (family != "dots1") {
        return file;
    }
    file["n_routed_experts"] = file["num_experts_per_tok"] = file["n_shared_experts"] = 2;
    return file;
}

[[nodiscard]] inline ModelConfig parsed(const json& config) {
    return parse_model_config(config.dump(), "d/config.json");
}

[[nodiscard]] inline std::string refused(const json& config) {
    return message_of<InputFileError>([&] { (void)parsed(config); });
}

[[nodiscard]] inline json with(json config, const char* key, const json& value) {
    config[key] = value;
    return config;
}

/// Parses to itself, and says the same in keys of transformers.
[[nodiscard]] inline json printed(const ModelConfig& config) {
    const std::string text = print_model_config(config);
    EXPECT_NO_THROW(check_same_model(parse_model_config(text, "again"), "again", config));
    return json::parse(text);
}

/// What a run hears whose model is that of a file but for a change.
template <typename Change>
[[nodiscard]] std::string refused_run(const ModelConfig& file, const Change& change) {
    ModelConfig run = file;
    change(run);
    return message_of<InputFileError>([&] { check_same_model(file, "d/config.json", run); });
}

}  // namespace vocabpipe::testing
