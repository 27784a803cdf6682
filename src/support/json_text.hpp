// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace vocabpipe {

/// A JSON document as text; `indent` -1: on one line. JSON must be UTF-8, but file names need not
/// be: U+FFFD replaces other bytes.
template <typename Json>
[[nodiscard]] std::string json_text(const Json& json, int indent = -1) {
    return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace vocabpipe
