// SPDX-License-Identifier: Apache-2.0
#include "src/support/html_text.hpp"

namespace vocabpipe {

std::string html_text(std::string_view text) {
    std::string result;
    for (const char c : text) {
        if (c == '&') {
            result += "&amp;";
        } else if (c == '<') {
            result += "&lt;";
        } else {
            result += c;
        }
    }
    return result;
}

std::string script_text(std::string json) {
    for (size_t at = json.find('<'); at != std::string::npos; at = json.find('<', at)) {
        json.replace(at, 1, "\\u003c");
    }
    return json;
}

}  // namespace vocabpipe
