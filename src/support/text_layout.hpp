// SPDX-License-Identifier: Apache-2.0
// How text is laid out for a terminal of 80 columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe {

/// Columns that texts and tables keep to; step lines of training keep to 120.
inline constexpr size_t kTextWidth = 80;

/// What printf would print.
[[nodiscard, gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

/// Breaks each line of `text` at spaces into lines of at most `width` characters (a longer word
/// stays whole), of which all but the first begin with `indent` spaces. `used`: columns that
/// something before it takes on the first line. No line break at the end is added.
[[nodiscard]] std::string wrap_text(std::string_view text, size_t indent = 0, size_t used = 0,
                                    size_t width = kTextWidth);

/// "1 document", "2 documents"; `plural` where it is not the noun and an s.
[[nodiscard]] std::string counted(int64_t count, std::string_view noun,
                                  std::string_view plural = {});

/// Columns two spaces apart, wide enough for their cells.
class TextTable {
public:
    /// Begins a row. `left`: columns to align left, from the first row alone.
    void row(std::vector<std::string> cells, std::vector<bool> left = {});
    void cell(std::string text) { rows_.back().push_back(std::move(text)); }
    [[nodiscard]] bool empty() const { return rows_.empty(); }
    /// Lines that end in line breaks. A last column that is aligned left is broken at spaces, so
    /// that lines keep to kTextWidth.
    [[nodiscard]] std::string text() const;

private:
    std::vector<std::vector<std::string>> rows_;
    std::vector<bool> left_;
};

}  // namespace vocabpipe
