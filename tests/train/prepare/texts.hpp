// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// `count` different documents of about `bytes` bytes at most, on one line each, none empty.
inline std::vector<std::string> documents(size_t count, size_t bytes) {
    std::vector<std::string> result;
    for (size_t i = 0; i < count; ++i) {
        std::string text = "document " + std::to_string(i);
        const size_t length = i * 7919 % bytes;
        while (text.size() < length) text += " caf\u00e9 " + std::to_string(text.size() * i % 997);
        result.push_back(std::move(text));
    }
    return result;
}

/// A line for each document, with its text under "text" between other keys.
inline std::string json_lines(const std::vector<std::string>& documents) {
    std::string lines;
    for (const std::string& document : documents) {
        lines += nlohmann::json{{"id", 1}, {"text", document}, {"url", "u"}}.dump() + "\n";
    }
    return lines;
}

}  // namespace vocabpipe::testing
