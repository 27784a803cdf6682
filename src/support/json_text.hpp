// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace vocabpipe {

/// A JSON document as text; `indent` -1: in one line. What a user called a file may be no UTF-8,
/// which JSON must be: U+FFFD stands for such bytes.
template <typename Json>
[[nodiscard]] std::string json_text(const Json& json, int indent = -1) {
    return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace vocabpipe
