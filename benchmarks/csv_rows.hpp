// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// One row of a table, by column.
class CsvRow {
public:
    explicit CsvRow(std::map<std::string, std::string> cells) : cells_(std::move(cells)) {}
    /// "" for a column that the table has not.
    const std::string& operator[](const std::string& column) const {
        static const std::string kNone;
        const auto found = cells_.find(column);
        return found == cells_.end() ? kNone : found->second;
    }

private:
    std::map<std::string, std::string> cells_;
};

/// A table with a header (RFC 4180: cells may be quoted, but none has a line break). Lines that
/// start with # are comments.
class CsvFile {
public:
    /// Throws InputFileError if it cannot be read.
    explicit CsvFile(const std::string& path);
    [[nodiscard]] bool has(const std::string& column) const;
    /// The next row; none at the end. Throws InputFileError where it has too many or too few cells.
    std::optional<CsvRow> next();
    /// "FILE:LINE" of the row that was read last.
    [[nodiscard]] std::string place() const { return path_ + ":" + std::to_string(line_); }

private:
    std::optional<std::vector<std::string>> read();

    std::string path_;
    std::ifstream in_;
    int line_ = 0;
    std::vector<std::string> columns_;
};

}  // namespace vocabpipe
