// SPDX-License-Identifier: Apache-2.0
#include "src/tool/table.hpp"

#include <algorithm>
#include <cstdio>

namespace vocabpipe::tool {

void Table::row(std::vector<std::string> cells, std::vector<bool> left) {
    if (rows_.empty()) left_ = std::move(left);
    rows_.push_back(std::move(cells));
}

void Table::print() const {
    std::vector<size_t> width;
    for (const auto& row : rows_) {
        if (row.size() > width.size()) width.resize(row.size(), 0);
        for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
    }
    for (const auto& row : rows_) {
        std::string line;
        for (size_t i = 0; i < row.size(); ++i) {
            const std::string space(width[i] - row[i].size(), ' ');
            const bool left = i < left_.size() && left_[i];
            line += (i == 0 ? "" : "  ") + (left ? row[i] + space : space + row[i]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        std::printf("%s\n", line.c_str());
    }
}

}  // namespace vocabpipe::tool
