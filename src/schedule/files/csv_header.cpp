// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/files/csv_header.hpp"

#include "src/schedule/files/cell.hpp"
#include "src/support/nearest_name.hpp"
#include "src/support/parse_number.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace vocabpipe::files {

namespace {

constexpr std::string_view kName = "vocabpipe";
constexpr std::string_view kHeaderVersion = "1";
constexpr std::array<std::string_view, 3> kBarriers{"in_line", "one", "two"};

std::vector<std::string_view> words_of(std::string_view text, std::string_view separators) {
    std::vector<std::string_view> words;
    while (!text.empty()) {
        const size_t end = std::min(text.find_first_of(separators), text.size());
        if (end > 0) words.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return words;
}

std::vector<int64_t> rows_of(const std::vector<std::string_view>& words) {
    std::vector<int64_t> rows;
    for (size_t i = 1; i < words.size(); ++i) {
        const std::optional<int64_t> row = parse_number<int64_t>(words[i]);
        if (!row || *row < 0 || *row > int64_t{1} << 40) {
            throw CellError(std::string(words[0]) + ": " + shown(words[i]) +
                            " is not a row number from 0 to 2^40");
        }
        rows.push_back(*row);
    }
    return rows;
}

}  // namespace

bool is_csv_header(std::string_view line) {
    const auto words = words_of(line.substr(0, line.find(',')), " \t");
    return !words.empty() && words.front() == kName;
}

CsvHeader parse_csv_header(std::string_view line) {
    constexpr std::string_view kForm = "vocabpipe 1,barriers ...,input ...,output ...";
    const auto cells = words_of(line, ",");
    if (cells.size() != 4) {
        throw CellError("must have 4 cells: " + std::string(kForm));
    }
    constexpr std::array<std::string_view, 4> kKeys{kName, "barriers", "input", "output"};
    std::array<std::vector<std::string_view>, 4> words;
    for (size_t i = 0; i < cells.size(); ++i) {
        words[i] = words_of(cells[i], " \t");
        if (words[i].empty() || words[i].front() != kKeys[i]) {
            throw CellError("cell " + std::to_string(i + 1) + " must begin with " +
                            std::string(kKeys[i]) + ": " + std::string(kForm));
        }
    }
    if (words[0].size() != 2 || words[0][1] != kHeaderVersion) {
        throw CellError("version " + shown(words[0].size() > 1 ? words[0][1] : "") +
                        ": this build reads only version 1");
    }
    if (words[1].size() != 2) throw CellError("barriers must be in_line, one or two");
    return {barriers_from(words[1][1]), rows_of(words[2]), rows_of(words[3])};
}

std::string print_csv_header(const Schedule& schedule) {
    std::string text = std::string(kName) + " " + std::string(kHeaderVersion) + ",barriers " +
                       std::string(to_string(schedule.barriers)) + ",input";
    for (const int64_t row : schedule.input.first_row) text += " " + std::to_string(row);
    text += ",output";
    for (const int64_t row : schedule.output.first_row) text += " " + std::to_string(row);
    return text;
}

std::string_view to_string(Barriers barriers) {
    return kBarriers[static_cast<size_t>(barriers)];
}

Barriers barriers_from(std::string_view name) {
    const auto* found = std::find(kBarriers.begin(), kBarriers.end(), name);
    if (found == kBarriers.end()) {
        throw CellError("barriers " + shown(name) + ": " + must_be_one_of(kBarriers, name));
    }
    return static_cast<Barriers>(found - kBarriers.begin());
}

}  // namespace vocabpipe::files
