// SPDX-License-Identifier: Apache-2.0
// Text layout for terminals of 80 columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe {

/// Width of texts and tables; step lines of training may take 120.
inline constexpr size_t kTextWidth = 80;

/// The text that printf would print.
[[nodiscard, gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

/// Breaks each line of `text` at spaces into lines of at most `width` characters (a longer word
/// stays whole); all but the first are indented by `indent` spaces. `used`: columns that precede it
/// on the first line. Adds no line break at the end.
[[nodiscard]] std::string wrap_text(std::string_view text, size_t indent = 0, size_t used = 0,
                                    size_t width = kTextWidth);

/// "1 document", "2 documents"; `plural` if it is irregular.
[[nodiscard]] std::string counted(int64_t count, std::string_view noun,
                                  std::string_view plural = {});

/// A table with columns two spaces apart, wide enough for their cells.
class TextTable {
public:
    /// Begins a row. `left`: columns to align left; only the first row's counts.
    void row(std::vector<std::string> cells, std::vector<bool> left = {});
    void cell(std::string text) { rows_.back().push_back(std::move(text)); }
    [[nodiscard]] bool empty() const { return rows_.empty(); }
    /// The lines, each with a line break. A last column that is aligned left is broken at spaces,
    /// so that lines keep to kTextWidth.
    [[nodiscard]] std::string text() const;

private:
    std::vector<std::vector<std::string>> rows_;
    std::vector<bool> left_;
};

}  // namespace vocabpipe
