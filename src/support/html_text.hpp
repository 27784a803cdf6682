// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vocabpipe {

/// `text` as the content of an HTML element; not of an attribute.
[[nodiscard]] std::string html_text(std::string_view text);

}  // namespace vocabpipe
