// SPDX-License-Identifier: Apache-2.0
#include "src/train/verify/loss_log.hpp"

#include "src/support/joined.hpp"
#include "src/support/parse_number.hpp"
#include "src/support/read_whole_file.hpp"
#include "src/support/split_text.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace vocabpipe {

namespace {

std::string_view trimmed(std::string_view text) {
    const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    return text;
}

/// A number at the beginning of `text`, with what is behind it; none if there is none.
std::optional<std::pair<LoggedLoss, std::string_view>> leading_number(std::string_view text) {
    text = trimmed(text);
    if (text.starts_with('+')) text.remove_prefix(1);
    LoggedLoss number;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number.loss);
    if (error == std::errc::invalid_argument) return std::nullopt;
    const std::string_view digits = text.substr(0, static_cast<size_t>(end - text.data()));
    // Too large or too small for a double: not what a loss is.
    if (error != std::errc()) number.loss = std::numeric_limits<double>::quiet_NaN();
    if (std::isfinite(number.loss)) {
        const size_t exponent_at = std::min(digits.find_first_of("eE"), digits.size());
        const size_t point = digits.substr(0, exponent_at).find('.');
        int64_t exponent = 0;
        if (exponent_at < digits.size()) {
            std::string_view text_of_exponent = digits.substr(exponent_at + 1);
            if (text_of_exponent.starts_with('+')) text_of_exponent.remove_prefix(1);
            exponent = parse_number<int64_t>(text_of_exponent).value_or(0);
        }
        const auto decimals = point == std::string_view::npos
                                  ? int64_t{0}
                                  : static_cast<int64_t>(exponent_at - point) - 1;
        number.rounding = 0.5 * std::pow(10.0, static_cast<double>(exponent - decimals));
    }
    return std::pair{number, text.substr(digits.size())};
}

/// All of `text` as a loss.
std::optional<LoggedLoss> whole_number(std::string_view text) {
    const auto number = leading_number(text);
    if (!number || !trimmed(number->second).empty()) return std::nullopt;
    return number->first;
}

std::vector<std::string> names_of_losses(const std::string& column) {
    if (!column.empty()) return {column};
    return {"lm loss", "loss", "train_loss", "train/loss"};
}

constexpr std::string_view kStepNames[] = {"step", "iteration"};

/// Reads the lines of one file.
class LossLogReader {
public:
    LossLogReader(const std::string& path, const std::string& column)
        : path_(path), names_(names_of_losses(column)) {}

    void read_line(std::string_view line) {
        ++line_;
        line = trimmed(line);
        if (line.empty()) return;
        if (line.starts_with('{')) return read_json(line);
        if (const auto number = whole_number(line)) return add(steps_ + 1, *number);
        if (line.find("iteration ") != std::string_view::npos) return read_console(line);
        if (line.find(',') != std::string_view::npos) read_csv(line);
    }

    [[nodiscard]] std::vector<LoggedLoss> take() const {
        if (losses_.empty()) {
            throw InputFileError(path_ + ": no line has a loss under the name " + joined(names_) +
                                 "; name its column with --column");
        }
        std::vector<LoggedLoss> all;
        for (const auto& [step, loss] : losses_) all.push_back(loss);
        return all;
    }

private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw InputFileError(path_ + ": line " + std::to_string(line_) + ": " + what);
    }

    void add(int64_t step, LoggedLoss loss) {
        if (step < 1) refuse("step " + std::to_string(step) + ": must be at least 1");
        loss.step = step;
        steps_ = std::max(steps_, step);
        losses_[step] = loss;
    }

    void read_json(std::string_view line) {
        const auto json = nlohmann::json::parse(line, nullptr, false);
        if (!json.is_object()) return;  // the last line of a run that was killed
        const auto name = std::ranges::find_if(
            names_, [&](const std::string& one) { return json.contains(one); });
        if (name == names_.end()) return;  // an evaluation
        const auto& value = json.at(*name);
        LoggedLoss loss;
        if (value.is_null()) {
            loss.loss = std::numeric_limits<double>::quiet_NaN();
        } else if (value.is_number()) {
            loss.loss = value.get<double>();
        } else {
            refuse("\"" + *name + "\" is not a number");
        }
        int64_t step = steps_ + 1;
        for (const std::string_view key : kStepNames) {
            const auto found = json.find(key);
            if (found == json.end()) continue;
            if (!found->is_number_integer()) refuse("\"" + std::string(key) + "\" is no integer");
            step = found->get<int64_t>();
            break;
        }
        add(step, loss);
    }

    /// " iteration      3/  100 | ... | lm loss: 1.234567E+00 |", or the same without the colon.
    void read_console(std::string_view line) {
        constexpr std::string_view kIteration = "iteration ";
        std::string_view rest = trimmed(line.substr(line.find(kIteration) + kIteration.size()));
        int64_t step = 0;
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), step);
        if (error != std::errc()) return;
        rest = trimmed(rest.substr(static_cast<size_t>(end - rest.data())));
        if (!rest.starts_with('/')) return;
        for (const std::string& name : names_) {
            for (std::string_view cell : split_text(rest, '|')) {
                cell = trimmed(cell);
                if (!cell.starts_with(name)) continue;
                cell = trimmed(cell.substr(name.size()));
                if (cell.starts_with(':')) cell.remove_prefix(1);
                const auto number = leading_number(cell);
                if (!number) refuse(name + " is not followed by a number");
                return add(step, number->first);
            }
        }
    }

    void read_csv(std::string_view line) {
        const std::vector<std::string_view> cells = split_text(line);
        const auto cell_of = [&](std::string_view name) {
            const auto found = std::ranges::find_if(cells, [&](std::string_view cell) {
                cell = trimmed(cell);
                if (cell.size() > 1 && cell.starts_with('"') && cell.ends_with('"')) {
                    cell = cell.substr(1, cell.size() - 2);
                }
                return cell == name;
            });
            return found == cells.end() ? std::optional<size_t>()
                                        : static_cast<size_t>(found - cells.begin());
        };
        if (!loss_column_) {
            for (const std::string& name : names_) {
                if (!loss_column_) loss_column_ = cell_of(name);
            }
            for (const std::string_view name : kStepNames) {
                if (loss_column_ && !step_column_) step_column_ = cell_of(name);
            }
            return;
        }
        if (*loss_column_ >= cells.size()) return;  // the last line of a run that was killed
        const auto loss = whole_number(cells[*loss_column_]);
        if (!loss) return;  // a line of validation leaves it empty
        int64_t step = steps_ + 1;
        if (step_column_) {
            const auto number = parse_number<int64_t>(trimmed(cells[*step_column_]));
            if (!number) refuse("the step is no integer");
            step = *number;
        }
        add(step, *loss);
    }

    const std::string& path_;
    std::vector<std::string> names_;
    int64_t line_ = 0;
    int64_t steps_ = 0;                                ///< the last step so far
    std::optional<size_t> loss_column_, step_column_;  ///< below a line of names
    std::map<int64_t, LoggedLoss> losses_;
};

}  // namespace

std::vector<LoggedLoss> read_loss_log(const std::string& path, const std::string& column) {
    const std::string text =
        read_whole_file(path, "name a log, a CSV file or JSON lines with losses");
    LossLogReader reader(path, column);
    for (const std::string_view line : split_text(text, '\n')) reader.read_line(line);
    return reader.take();
}

}  // namespace vocabpipe
