// SPDX-License-Identifier: Apache-2.0
// Reads in two steps: all cells without interpretation, then their meaning, because the dialect,
// and in the old one the meaning of B, depend on the whole file.
#include "src/schedule/files/cell.hpp"
#include "src/schedule/files/csv_header.hpp"
#include "src/schedule/files/lowered_cells.hpp"
#include "src/schedule/files/user_schedule.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/schedule_file.hpp"

#include <limits>
#include <set>
#include <tuple>
#include <utility>

namespace vocabpipe {

namespace files {

namespace {

/// The lines without their ends; an empty rest after the last line end is not a line.
std::vector<std::string_view> lines_of(std::string_view text) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        if (line.ends_with('\r')) line.remove_suffix(1);
        lines.push_back(line);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

/// A cell, and where the next one begins; npos: it was the last. Cells may be in double quotes, as
/// spreadsheets write them.
std::pair<std::string_view, size_t> cell_at_begin(std::string_view line) {
    if (!line.starts_with('"')) {
        const size_t end = line.find(',');
        return {line.substr(0, end), end == std::string_view::npos ? end : end + 1};
    }
    const size_t close = line.find('"', 1);
    if (close == std::string_view::npos) throw CellError("its double quotes do not end");
    const std::string_view rest = line.substr(close + 1);
    if (!rest.empty() && !rest.starts_with(',')) {
        throw CellError("something follows its double quotes");
    }
    return {line.substr(1, close - 1), rest.empty() ? std::string_view::npos : close + 2};
}

class CsvReader {
public:
    CsvReader(std::string_view text, const std::string& name, const ReadScheduleOptions& options)
        : name_(name), options_(options), dialect_(options.dialect), lines_(lines_of(text)) {
        if (dialect_ == CsvDialect::lowered) dialect_ = CsvDialect::current;
    }

    ScheduleFile run() {
        std::optional<CsvHeader> header;
        if (!lines_.empty() && is_csv_header(lines_.front())) {
            header = read_header();
            dialect_ = CsvDialect::vocabpipe;
            first_row_ = 1;
        }
        if (lines_.size() == first_row_) {
            throw InputFileError(name_ + ": has no rows; a schedule has one row per rank");
        }
        check_ranks();
        for (size_t row = first_row_; row < lines_.size(); ++row) split(row);
        if (options_.ranks == 0 && rows_.back().empty()) {
            notes_.push_back(name_ + ": the last line is blank, so rank " +
                             std::to_string(rows_.size() - 1) +
                             " has no passes; remove the line if there is no such rank");
        }
        if (dialect_ == CsvDialect::automatic) choose_dialect();
        interpret();
        check(header);
        return {std::move(schedule_), std::move(notes_)};
    }

private:
    struct Located {
        RawCell cell;
        size_t column;
    };

    [[noreturn]] void fail(size_t row, std::optional<size_t> column, std::string_view cell,
                           const std::string& reason) const {
        std::string where = name_ + ": row " + std::to_string(row + 1);
        if (column) where += ", cell " + std::to_string(*column + 1);
        if (!cell.empty()) where += ", " + shown(cell);
        throw InputFileError(where + ": " + reason);
    }

    CsvHeader read_header() const {
        try {
            return parse_csv_header(lines_.front());
        } catch (const CellError& error) {
            fail(0, std::nullopt, "", error.what());
        }
    }

    void check_ranks() const {
        const size_t rows = lines_.size() - first_row_;
        if (rows > std::numeric_limits<uint16_t>::max()) {
            throw InputFileError(name_ + ": has " + std::to_string(rows) +
                                 " rows; a schedule has one row per rank and at most 65535");
        }
        if (options_.ranks > 0 && rows != static_cast<size_t>(options_.ranks)) {
            throw InputFileError(name_ + ": has " + std::to_string(rows) + " rows, but expected " +
                                 std::to_string(options_.ranks) +
                                 " ranks; a schedule has one row per rank");
        }
    }

    void split(size_t row) {
        std::vector<Located>& cells = rows_.emplace_back();
        std::string_view rest = lines_[row];
        for (size_t column = 0;; ++column) {
            size_t next = std::string_view::npos;
            std::string_view text = rest.substr(0, rest.find(','));
            try {
                std::tie(text, next) = cell_at_begin(rest);
                RawCell cell = parse_cell(text);
                if (!cell.actions.empty()) cells.push_back({std::move(cell), column});
            } catch (const CellError& error) {
                fail(row, column, text, error.what());
            }
            if (next == std::string_view::npos) return;
            rest.remove_prefix(next);
        }
    }

    template <typename Visit>
    void for_each_action(const Visit& visit) const {
        for (size_t rank = 0; rank < rows_.size(); ++rank) {
            for (const Located& at : rows_[rank]) {
                for (const RawAction& action : at.cell.actions) visit(rank, at, action);
            }
        }
    }

    using Key = std::pair<uint32_t, uint32_t>;  // stage, microbatch
    static Key key_of(const RawAction& action) {
        return {action.stage.value_or(0), action.microbatch.value_or(0)};
    }

    /// Keys with a W: in the old dialect their B is an input gradient.
    std::set<Key> keys_with(std::string_view word) const {
        std::set<Key> keys;
        for_each_action([&](size_t, const Located&, const RawAction& action) {
            if (action.word == word) keys.insert(key_of(action));
        });
        return keys;
    }

    void choose_dialect() {
        const std::set<Key> with_weight = keys_with("W");
        std::string of_new;
        std::string of_old;
        for_each_action([&](size_t rank, const Located& at, const RawAction& action) {
            const auto evidence = [&](std::string& of) {
                if (of.empty()) {
                    of = "row " + std::to_string(rank + 1) + ", cell " +
                         std::to_string(at.column + 1) + ", " + shown(at.cell.text);
                }
            };
            const std::optional<Transfer> transfer = transfer_of(action.word);
            const bool new_word = transfer && is_new(*transfer);
            if (at.cell.pair || action.word == "I" || new_word) evidence(of_new);
            const bool split = action.word == "B" && with_weight.contains(key_of(action));
            if (at.cell.batched || action.word == "BW" || split) evidence(of_old);
        });
        if (!of_new.empty() && !of_old.empty()) {
            throw InputFileError(name_ + ": " + of_new + " is PyTorch's new dialect, but " +
                                 of_old + " is the old one; a file has one dialect");
        }
        dialect_ = of_old.empty() ? CsvDialect::current : CsvDialect::old;
        notes_.push_back(name_ + ": read in PyTorch's " + std::string(to_string(dialect_)) +
                         " dialect" +
                         (!of_old.empty()   ? " because of " + of_old
                          : !of_new.empty() ? " because of " + of_new
                                            : "; its cells are the same in both dialects"));
    }

    void interpret() {
        const std::set<Key> with_weight =
            dialect_ == CsvDialect::old ? keys_with("W") : std::set<Key>{};
        passes_.resize(rows_.size());
        columns_.resize(rows_.size());
        for_each_action([&](size_t rank, const Located& at, const RawAction& action) {
            std::vector<Pass>& list = passes_[rank];
            try {
                Meaning meaning = meaning_of(at.cell, action, dialect_);
                if (!meaning.pass) {
                    transfers_.push_back({meaning.transfer, meaning.stage, meaning.microbatch,
                                          static_cast<int>(rank), list.size(), at.column});
                    return;
                }
                Pass pass = *meaning.pass;
                // In the old dialect only B gives I; without a W it is a full B.
                if (pass.op == Op::I && dialect_ == CsvDialect::old &&
                    !with_weight.contains(key_of(action))) {
                    pass.op = Op::B;
                }
                pass.with_next = at.cell.pair && &action == &at.cell.actions.front();
                list.push_back(pass);
                columns_[rank].push_back(at.column);
            } catch (const CellError& error) {
                fail(first_row_ + rank, at.column, at.cell.text, error.what());
            }
        });
    }

    void check(const std::optional<CsvHeader>& header) {
        schedule_ = inferred_schedule(std::move(passes_));
        if (header) {
            schedule_.barriers = header->barriers;
            schedule_.input.first_row = header->input;
            schedule_.output.first_row = header->output;
        }
        if (auto violation = find_user_violation(schedule_)) {
            violation->reason += old_dialect_hint();
            fail(*violation);
        }
        if (auto fault = find_transfer_fault(schedule_, transfers_)) {
            const auto rank = static_cast<size_t>(fault->rank);
            fail(first_row_ + rank, fault->column,
                 fault->column ? cell_text(rank, *fault->column) : "", fault->reason);
        }
        if (!transfers_.empty()) {
            notes_.push_back(name_ + ": skipped " + std::to_string(transfers_.size()) +
                             " communication and sharding cells after checking them; lowering "
                             "infers them from the passes");
        }
    }

    /// A remedy for files that are faulty in the dialect new because a B has a W and no I.
    std::string old_dialect_hint() const {
        if (dialect_ != CsvDialect::current) return "";
        const std::set<Key> weights = keys_with("W");
        const std::set<Key> gradients = keys_with("I");
        const std::set<Key> backwards = keys_with("B");
        for (const Key& key : weights) {
            if (!backwards.contains(key) || gradients.contains(key)) continue;
            return "; if a B with a W is an input gradient here, read the file in the dialect old "
                   "(vocabpipe schedule convert --dialect old)";
        }
        return "";
    }

    std::string_view cell_text(size_t rank, size_t column) const {
        for (const Located& at : rows_[rank]) {
            if (at.column == column) return at.cell.text;
        }
        return "";
    }

    [[noreturn]] void fail(const Violation& violation) const {
        if (violation.rank < 0) throw InputFileError(name_ + ": " + violation.message());
        const auto rank = static_cast<size_t>(violation.rank);
        if (violation.index < 0) {
            fail(first_row_ + rank, std::nullopt, "", violation.pass + " " + violation.reason);
        }
        const size_t column = columns_[rank][static_cast<size_t>(violation.index)];
        fail(first_row_ + rank, column, cell_text(rank, column),
             violation.pass + " " + violation.reason);
    }

    const std::string& name_;
    const ReadScheduleOptions& options_;
    CsvDialect dialect_;
    std::vector<std::string_view> lines_;
    size_t first_row_ = 0;                      ///< first row of a rank, after a header
    std::vector<std::vector<Located>> rows_;    ///< [rank], idle steps left out
    std::vector<std::vector<Pass>> passes_;     ///< [rank]
    std::vector<std::vector<size_t>> columns_;  ///< [rank][position] column of the pass
    std::vector<TransferCell> transfers_;
    Schedule schedule_;
    std::vector<std::string> notes_;
};

}  // namespace

}  // namespace files

ScheduleFile parse_schedule_csv(std::string_view text, const std::string& name,
                                const ReadScheduleOptions& options) {
    return files::CsvReader(text, name, options).run();
}

}  // namespace vocabpipe
