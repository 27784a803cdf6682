// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/decoder_keys.hpp"

#include "src/model/config/fields.hpp"
#include "src/model/config_json/rope_keys.hpp"
#include "src/model/config_json/rotary_share.hpp"
#include "src/support/joined.hpp"

#include <charconv>
#include <string>
#include <system_error>
#include <variant>
#include <vector>

namespace vocabpipe {

namespace {

/// Reads the number of key heads and the head size, where they are not the number of query heads
/// and hidden size / heads.
void read_grouped_heads(const ConfigValues& file, ModelConfig& c) {
    const int64_t heads = c.num_attention_heads;
    const auto kv_heads =
        file.size("num_key_value_heads", file.defaults().kv_heads, heads, kMostHeads);
    if (kv_heads > 0 && heads % kv_heads != 0) {
        file.json().fail("num_key_value_heads is " + std::to_string(kv_heads) +
                         ", but must divide " + file.keys().heads + " " + std::to_string(heads));
    }
    c.num_query_groups = kv_heads == heads ? 0 : kv_heads;
    const int64_t channels = file.size("head_dim", file.defaults().head_size, 0, kMostHeads);
    c.kv_channels = channels * heads == c.hidden_size ? 0 : channels;
    if (c.head_size() % 2 != 0) {
        file.json().fail("a head has " + std::to_string(c.head_size()) + " channels (" +
                         (channels > 0 ? "head_dim" : "hidden_size / num_attention_heads") +
                         "); rotary positions need an even number");
    }
}

/// The members that a switch sets.
std::vector<bool*> members_of(ModelConfig& c, std::string_view key) {
    std::vector<bool*> members;
    for (const ModelField& field : model_fields(c)) {
        if (field.key == key) members.push_back(std::get<bool*>(field.flag.value));
    }
    return members;
}

}  // namespace

kernels::Activation read_activation(const ConfigValues& file,
                                    std::span<const NamedActivation> names) {
    const auto value = file.given(file.keys().activation);
    const std::string name = value ? value->text() : file.defaults().activation;
    for (const NamedActivation& one : names) {
        if (one.name == name) return one.activation;
    }
    file.json()
        .at(file.keys().activation)
        .fail("\"" + name.substr(0, 40) + "\" is not supported; use " +
              joined(names, ", ", &NamedActivation::name));
}

void read_decoder_sizes(const ConfigValues& file, ModelConfig& c) {
    const char* const positions = file.keys().positions;
    c.max_position_embeddings = file.json().has(positions)
                                    ? file.json().at(positions).integer(1, kMostPositions)
                                    : file.defaults().positions;
    c.ffn_hidden_size = file.width(file.keys().ffn);
    read_grouped_heads(file, c);
}

void read_rotary_decoder(const ConfigValues& file, ModelConfig& c) {
    read_decoder_sizes(file, c);
    c.rope = read_rope(file.json(), c.max_position_embeddings, file.defaults().rope_theta);
    refuse_rotary_share(file);
}

void print_rotary_decoder(const ModelConfig& c, nlohmann::ordered_json& json) {
    json["num_key_value_heads"] = c.kv_heads();
    json["head_dim"] = c.head_size();
    print_rope(c.rope, json);
    print_switches(c, json);
    json["attention_dropout"] = 0.0;
}

void read_switches(const ConfigValues& file, ModelConfig& c) {
    for (const ConfigSwitch& one : model_family(c.family).switches) {
        const bool value = file.optional_flag(one.key, one.otherwise);
        for (bool* const member : members_of(c, one.key)) *member = value;
    }
}

void print_switches(const ModelConfig& config, nlohmann::ordered_json& json) {
    ModelConfig c = config;  // the rows need a mutable object
    for (const ConfigSwitch& one : model_family(c.family).switches) {
        json[one.key] = *members_of(c, one.key).front();
    }
}

void print_no_padding(nlohmann::ordered_json& json) {
    json["pad_token_id"] = nullptr;
}

double shortest(float value) {
    char digits[32];
    const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
    double result = value;
    if (error == std::errc()) std::from_chars(digits, end, result);
    return result;
}

}  // namespace vocabpipe
