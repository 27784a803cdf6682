// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe::tool {

/// A page that loads nothing from elsewhere, light or dark as the reader's system is.
struct HtmlPage {
    std::string title;
    std::vector<std::pair<std::string, std::string>> facts;  ///< a table below the title
    /// CSS of this page's own elements. The colors --text, --soft, --line, --chosen, --out, --open
    /// and --accent have a value for light and one for dark.
    std::string_view style;
    std::string body;  ///< HTML

    [[nodiscard]] std::string html() const;
};

}  // namespace vocabpipe::tool
