// SPDX-License-Identifier: Apache-2.0
#include "src/imported/operations.hpp"

#include "src/support/next_line.hpp"
#include "src/support/parse_number.hpp"
#include "src/support/split_text.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

namespace vocabpipe::imported {

namespace {

enum Column : uint8_t { dp_rank, stage, step, optype, start_ts, duration, seq_id, mb_id, gmc };
constexpr std::array<std::string_view, 9> kColumns{
    "dp_rank", "stage", "step", "optype", "start_ts", "duration", "seq_id", "mb_id", "gmc"};
constexpr int64_t kMostTableRanks = 4096;
constexpr double kMostSeconds = 1e6;

/// The cells of a header, around which some programs put quotes.
std::vector<std::string_view> column_names(std::string_view line) {
    std::vector<std::string_view> cells = split_text(line);
    for (std::string_view& cell : cells) {
        if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"') {
            cell = cell.substr(1, cell.size() - 2);
        }
    }
    return cells;
}

struct Operation {
    int64_t step = 0;
    int rank = 0;
    std::string type;
    int64_t begin_ns = 0, end_ns = 0;  ///< since the begin of the step
    int64_t number = 0, microbatch = 0, stage = 0;
};

class Table {
public:
    Table(std::string_view text, const std::string& name, int replica)
        : name_(name), replica_(replica) {
        for (size_t at = 0; at < text.size();) {
            const std::string_view line = next_line(text, at);
            ++line_;
            if (line.empty()) continue;
            if (columns_ == 0) {
                header(line);
            } else {
                row(line);
            }
        }
    }

    [[nodiscard]] std::vector<Operation> take() && { return std::move(operations_); }

private:
    [[noreturn]] void fail(const std::string& what) const {
        throw InputFileError(name_ + ":" + std::to_string(line_) + ": " + what);
    }

    void header(std::string_view line) {
        const std::vector<std::string_view> cells = column_names(line);
        columns_ = cells.size();
        for (size_t column = 0; column < kColumns.size(); ++column) {
            const auto found = std::ranges::find(cells, kColumns[column]);
            if (found == cells.end()) {
                fail("has no column \"" + std::string(kColumns[column]) +
                     "\"; save all columns of the published table");
            }
            place_[column] = static_cast<size_t>(found - cells.begin());
        }
    }

    int64_t integer(const std::vector<std::string_view>& cells, Column column, int64_t least,
                    int64_t most) const {
        const std::string_view text = cells[place_[column]];
        const std::optional<int64_t> value = parse_number<int64_t>(text);
        if (!value || *value < least || *value > most) {
            fail(std::string(kColumns[column]) + " \"" + std::string(text) +
                 "\": must be an integer from " + std::to_string(least) + " to " +
                 std::to_string(most));
        }
        return *value;
    }

    int64_t nanoseconds(const std::vector<std::string_view>& cells, Column column) const {
        const std::string_view text = cells[place_[column]];
        const std::optional<double> value = parse_number<double>(text);
        if (!value || !(*value >= 0 && *value <= kMostSeconds)) {
            fail(std::string(kColumns[column]) + " \"" + std::string(text) +
                 "\": must be a number of seconds from 0 to 1000000");
        }
        return std::llround(*value * 1e9);
    }

    void row(std::string_view line) {
        const std::vector<std::string_view> cells = split_text(line);
        if (cells.size() != columns_) {
            fail("has " + std::to_string(cells.size()) + " cells; expected " +
                 std::to_string(columns_));
        }
        constexpr int64_t kMost = int64_t{1} << 31;
        if (integer(cells, dp_rank, 0, kMost) != replica_) return;
        Operation one{.step = integer(cells, step, 0, kMost),
                      .rank = static_cast<int>(integer(cells, stage, 0, kMostTableRanks - 1)),
                      .type = std::string(cells[place_[optype]]),
                      .begin_ns = nanoseconds(cells, start_ts),
                      .number = integer(cells, seq_id, 0, kMost),
                      .microbatch = integer(cells, mb_id, -1, kMost),
                      .stage = integer(cells, gmc, -1, kMostTableRanks - 1)};
        one.end_ns = one.begin_ns + nanoseconds(cells, duration);
        operations_.push_back(std::move(one));
    }

    const std::string& name_;
    const int replica_;
    int line_ = 0;
    size_t columns_ = 0;  ///< 0: before the header
    std::array<size_t, kColumns.size()> place_{};
    std::vector<Operation> operations_;
};

/// The range's name by the rules `operations`; "": it is none of a pass or message.
std::string name_of(const Operation& one, bool several_stages) {
    const bool forward = one.type.starts_with("forward-");
    if (!forward && !one.type.starts_with("backward-")) return "";
    const std::string op = forward ? "F stage " : "B stage ";
    if (one.type.ends_with("-compute")) {
        if (one.stage < 0 || one.microbatch < 0) return "";
        return op + std::to_string(one.stage) + " microbatch " + std::to_string(one.microbatch);
    }
    if (several_stages) return "";
    const std::string pass =
        op + std::to_string(one.rank) + " microbatch " + std::to_string(one.number);
    if (one.type.ends_with("-recv")) return "receive for " + pass;
    return one.type.ends_with("-send") ? "send after " + pass : "";
}

}  // namespace

bool is_operations(std::string_view head) {
    constexpr size_t kMostHeader = 4096;
    size_t at = 0;
    const std::string_view line = next_line(head.substr(0, kMostHeader), at);
    return std::ranges::count(column_names(line), kColumns[optype]) == 1;
}

std::vector<RankRanges> read_operations(std::string_view text, const std::string& name,
                                        int replica) {
    const std::vector<Operation> operations = Table(text, name, replica).take();
    if (operations.empty()) {
        throw UsageError("--replica " + std::to_string(replica) + ": " + name +
                         " has no operation of it; use a dp_rank of the table");
    }
    std::map<int64_t, int64_t> begin_of_step;  // by number: its longest end, then its begin
    size_t ranks = 0;
    bool several_stages = false;
    for (const Operation& one : operations) {
        int64_t& longest = begin_of_step[one.step];
        longest = std::max(longest, one.end_ns);
        ranks = std::max(ranks, static_cast<size_t>(one.rank) + 1);
        several_stages |= one.stage >= 0 && one.stage != one.rank;
    }
    int64_t begin = 0;
    for (auto& [step, longest] : begin_of_step) begin += std::exchange(longest, begin) + 1;
    std::vector<RankRanges> result(ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
        result[rank].file = name;
        result[rank].rank = static_cast<int>(rank);
    }
    for (const Operation& one : operations) {
        std::string range = name_of(one, several_stages);
        if (range.empty()) continue;
        const int64_t of_step = begin_of_step.at(one.step);
        result[static_cast<size_t>(one.rank)].ranges.push_back(
            {std::move(range), of_step + one.begin_ns, of_step + one.end_ns});
    }
    return result;
}

}  // namespace vocabpipe::imported
