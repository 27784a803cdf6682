// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vocabpipe {

/// `text` escaped as the content of an HTML element; not for attributes.
[[nodiscard]] std::string html_text(std::string_view text);

}  // namespace vocabpipe
