// SPDX-License-Identifier: Apache-2.0
#include "src/model/config_json/text_ends.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

namespace {

constexpr size_t kMostEnds = 1000;  // of a text

/// One token, or several in an array; -1 stands for none in old files.
std::vector<int32_t> tokens(const ConfigValues& file, const char* key, const ModelConfig& c) {
    const auto value = file.given(key);
    if (!value) return {};
    std::vector<int32_t> found;
    for (const StrictJson& one :
         value->is_array() ? value->items(kMostEnds) : std::vector{*value}) {
        const int64_t id = one.integer(-1, INT32_MAX);
        if (id >= 0 && id < c.vocab_size) found.push_back(static_cast<int32_t>(id));
    }
    return found;
}

}  // namespace

void read_text_ends(const ConfigValues& file, ModelConfig& c) {
    const std::vector<int32_t> begin = tokens(file, "bos_token_id", c);
    if (!begin.empty()) c.begin_of_text = begin.front();
    c.ends_of_text = tokens(file, "eos_token_id", c);
}

void print_text_ends(const ModelConfig& c, nlohmann::ordered_json& json) {
    json["bos_token_id"] = nullptr;  // the default may be no token of this model
    json["eos_token_id"] = nullptr;
    if (c.begin_of_text) json["bos_token_id"] = *c.begin_of_text;
    if (c.ends_of_text.size() == 1) {
        json["eos_token_id"] = c.ends_of_text.front();
    } else if (!c.ends_of_text.empty()) {
        json["eos_token_id"] = c.ends_of_text;
    }
}

}  // namespace vocabpipe
