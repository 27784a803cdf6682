// SPDX-License-Identifier: Apache-2.0
#include "src/imported/nsys_ranges.hpp"

#include "src/support/next_line.hpp"
#include "src/support/parse_number.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace vocabpipe::imported {

namespace {

constexpr std::array<std::string_view, 3> kNsysColumns{"Start (ns)", "End (ns)", "Name"};

/// The cells of a line; in a cell with quotes around it, "" is a quote and a comma is text.
std::vector<std::string> quoted_cells(std::string_view line) {
    std::vector<std::string> cells(1);
    bool quoted = false;
    for (size_t at = 0; at < line.size(); ++at) {
        const char c = line[at];
        if (c == '"' && quoted && at + 1 < line.size() && line[at + 1] == '"') {
            cells.back() += c;
            ++at;
        } else if (c == '"') {
            quoted = !quoted;
        } else if (c == ',' && !quoted) {
            cells.emplace_back();
        } else {
            cells.back() += c;
        }
    }
    return cells;
}

}  // namespace

bool is_nsys_ranges(std::string_view head) {
    constexpr size_t kMostHeader = 4096;
    size_t at = 0;
    const std::vector<std::string> cells = quoted_cells(next_line(head.substr(0, kMostHeader), at));
    return std::ranges::all_of(kNsysColumns, [&](std::string_view column) {
        return std::ranges::find(cells, column) != cells.end();
    });
}

RankRanges read_nsys_ranges(std::string_view text, const std::string& name) {
    RankRanges rank{.file = name};
    size_t at = 0;
    const std::vector<std::string> header = quoted_cells(next_line(text, at));
    std::array<size_t, kNsysColumns.size()> place{};
    for (size_t column = 0; column < place.size(); ++column) {
        const auto found = std::ranges::find(header, kNsysColumns[column]);
        if (found == header.end()) {
            throw InputFileError(name + ":1: has no column \"" + std::string(kNsysColumns[column]) +
                                 "\"; print it with nsys stats --report nvtx_pushpop_trace "
                                 "--format csv");
        }
        place[column] = static_cast<size_t>(found - header.begin());
    }
    for (int line = 2; at < text.size(); ++line) {
        const std::vector<std::string> cells = quoted_cells(next_line(text, at));
        if (cells.size() == 1 && cells.front().empty()) continue;
        const auto number = [&](size_t column) -> std::optional<int64_t> {
            return place[column] < cells.size() ? parse_number<int64_t>(cells[place[column]])
                                                : std::nullopt;
        };
        const std::optional<int64_t> begin = number(0), end = number(1);
        if (!begin || !end || *begin < 0 || *end < *begin || place[2] >= cells.size()) {
            throw InputFileError(name + ":" + std::to_string(line) +
                                 ": has no name, or no begin and end in whole ns; print it with "
                                 "nsys stats --format csv");
        }
        const std::string& range = cells[place[2]];
        rank.ranges.push_back({range.substr(range.starts_with(':') ? 1 : 0), *begin, *end});
    }
    return rank;
}

}  // namespace vocabpipe::imported
