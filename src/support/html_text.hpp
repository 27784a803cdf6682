// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vocabpipe {

/// `text` escaped as the content of an HTML element; not for attributes.
[[nodiscard]] std::string html_text(std::string_view text);

/// JSON as the content of a script element: "<" is escaped, because even in strings "</script"
/// would end the element and "<!--" confuse it.
[[nodiscard]] std::string script_text(std::string json);

}  // namespace vocabpipe
