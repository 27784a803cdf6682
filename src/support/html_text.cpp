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

}  // namespace vocabpipe
