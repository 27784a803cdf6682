// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace vocabpipe::tool {

/// Columns of text on stdout, right-aligned, wide enough for their cells.
class Table {
public:
    /// Begins a row. `left`: columns to align left, from the first row alone.
    void row(std::vector<std::string> cells, std::vector<bool> left = {});
    void cell(std::string text) { rows_.back().push_back(std::move(text)); }
    void print() const;

private:
    std::vector<std::vector<std::string>> rows_;
    std::vector<bool> left_;
};

}  // namespace vocabpipe::tool
