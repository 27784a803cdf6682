// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/csv_rows.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe {

namespace {

std::vector<std::string> split_cells(const std::string& line) {
    std::vector<std::string> cells{""};
    bool quoted = false;
    for (size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
            cells.back() += line[++i];
        } else if (c == '"') {
            quoted = !quoted;
        } else if (c == ',' && !quoted) {
            cells.emplace_back();
        } else if (c != '\r') {
            cells.back() += c;
        }
    }
    return cells;
}

}  // namespace

CsvFile::CsvFile(const std::string& path) : path_(path), in_(path) {
    if (!in_) throw InputFileError(path + ": cannot be read");
    std::optional<std::vector<std::string>> header = read();
    if (!header) throw InputFileError(path + ": has no header");
    columns_ = std::move(*header);
}

bool CsvFile::has(const std::string& column) const {
    return std::find(columns_.begin(), columns_.end(), column) != columns_.end();
}

std::optional<std::vector<std::string>> CsvFile::read() {
    for (std::string line; std::getline(in_, line);) {
        ++line_;
        if (!line.empty() && line[0] != '#') return split_cells(line);
    }
    return std::nullopt;
}

std::optional<CsvRow> CsvFile::next() {
    const std::optional<std::vector<std::string>> cells = read();
    if (!cells) return std::nullopt;
    if (cells->size() != columns_.size()) {
        throw InputFileError(place() + ": has " + std::to_string(cells->size()) +
                             " cells, expected " + std::to_string(columns_.size()));
    }
    std::map<std::string, std::string> row;
    for (size_t i = 0; i < columns_.size(); ++i) row[columns_[i]] = (*cells)[i];
    return CsvRow(std::move(row));
}

}  // namespace vocabpipe
