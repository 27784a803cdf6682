// SPDX-License-Identifier: Apache-2.0
// vocabpipe compare: prints reports of train_gpt side by side.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "src/support/read_whole_file.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/text.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

using nlohmann::json;

constexpr const char* kAdvice = "use a file written by train_gpt --report";

json read_report(const std::string& path) {
    json report = json::parse(read_whole_file(path, kAdvice), nullptr, false);
    for (const char* key :
         {"schedule", "vocab_mode", "tokens_per_second", "first_loss", "last_loss", "bubble",
          "simulated_tokens_per_second", "simulated_bubble", "ranks"}) {
        if (report.is_discarded() || !report.is_object() || !report.contains(key)) {
            throw InputFileError(path + ": is not a report of train_gpt (no \"" + key + "\"); " +
                                 kAdvice);
        }
    }
    if (!report.at("ranks").is_array()) {
        throw InputFileError(path + ": \"ranks\" is not a list; " + kAdvice);
    }
    return report;
}

/// Reports have null for numbers that are not finite.
double value_of(const json& number) {
    return number.is_null() ? std::numeric_limits<double>::quiet_NaN() : number.get<double>();
}

std::string number(double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return text;
}

/// One value per rank, separated by " / ".
std::string per_rank(const json& report, const std::function<double(const json&)>& value,
                     int digits) {
    std::string text;
    for (const json& rank : report.at("ranks")) {
        text += (text.empty() ? "" : " / ") + number(value(rank), digits);
    }
    return text;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

struct Row {
    std::string name;
    std::vector<std::string> cells;
};

/// Prints the reports from `begin` on that fit next to each other, with their names; returns the
/// first one that did not fit.
size_t print(const std::vector<Row>& rows, size_t begin) {
    size_t names = 0;
    for (const Row& row : rows) names = std::max(names, row.name.size());
    const size_t reports = rows.front().cells.size();
    const size_t room = kTextWidth - names;
    std::vector<size_t> width;
    size_t taken = 0;
    size_t end = begin;
    for (; end < reports; ++end) {
        size_t wanted = 0;
        for (const Row& row : rows) wanted = std::max(wanted, row.cells[end].size());
        wanted = std::min(wanted, room - 2);  // longer cells are wrapped
        if (end > begin && taken + 2 + wanted > room) break;
        width.push_back(wanted);
        taken += 2 + wanted;
    }
    for (const Row& row : rows) {
        std::vector<std::vector<std::string>> cells;
        size_t lines = 1;
        for (size_t i = begin; i < end; ++i) {
            cells.push_back(lines_of(wrap_text(row.cells[i], 0, 0, width[i - begin])));
            lines = std::max(lines, cells.back().size());
        }
        for (size_t line = 0; line < lines; ++line) {
            std::printf("%-*s", static_cast<int>(names), line == 0 ? row.name.c_str() : "");
            for (size_t i = 0; i < cells.size(); ++i) {
                const char* const text = line < cells[i].size() ? cells[i][line].c_str() : "";
                std::printf("  %*s", static_cast<int>(width[i]), text);
            }
            std::printf("\n");
        }
    }
    return end;
}

void compare(const std::vector<std::string>& paths, bool simulated) {
    std::vector<json> reports;
    for (const std::string& path : paths) reports.push_back(read_report(path));
    const auto row = [&](const std::string& name,
                         const std::function<std::string(const json&)>& cell) {
        Row row{name, {}};
        for (size_t i = 0; i < reports.size(); ++i) {
            try {
                row.cells.push_back(one_line(cell(reports[i])));
            } catch (const json::exception&) {  // a key is missing, or of another type
                throw InputFileError(paths[i] + ": is not a report of train_gpt (no valid " + name +
                                     "); " + kAdvice);
            }
        }
        return row;
    };
    const auto mib = [](const char* key) {
        return [key](const json& rank) { return rank.at(key).get<double>() / (1 << 20); };
    };
    std::vector<Row> rows{
        row("schedule", [](const json& r) { return r.at("schedule").get<std::string>(); }),
        row("vocab mode", [](const json& r) { return r.at("vocab_mode").get<std::string>(); }),
        row("ranks", [](const json& r) { return std::to_string(r.at("ranks").size()); }),
        row("tokens/s", [](const json& r) { return number(r.at("tokens_per_second"), 0); }),
        row("loss, first step",
            [](const json& r) { return number(value_of(r.at("first_loss")), 4); }),
        row("loss, last step",
            [](const json& r) { return number(value_of(r.at("last_loss")), 4); }),
        row("bubble %",
            [](const json& r) { return number(100 * r.at("bubble").get<double>(), 1); }),
        row("busy % by rank (thread CPU time)",
            [&](const json& r) {
                return per_rank(
                    r, [](const json& k) { return 100 * k.at("busy_share").get<double>(); }, 1);
            }),
        row("memory by rank, MiB",
            [&](const json& r) { return per_rank(r, mib("measured_peak_bytes"), 0); }),
        row("predicted, MiB",
            [&](const json& r) { return per_rank(r, mib("predicted_peak_bytes"), 0); })};
    if (simulated) {
        rows.push_back(row("simulated, a core per rank: tokens/s", [](const json& r) {
            return number(r.at("simulated_tokens_per_second"), 0);
        }));
        rows.push_back(row("simulated, a core per rank: bubble %", [](const json& r) {
            return number(100 * r.at("simulated_bubble").get<double>(), 1);
        }));
    }
    for (size_t next = 0; next < reports.size();) {
        if (next > 0) std::printf("\n");
        next = print(rows, next);
    }
}

}  // namespace

Command compare_command() {
    const auto paths = std::make_shared<std::vector<std::string>>();
    const auto simulated = std::make_shared<bool>(false);
    return {.name = "compare",
            .description = "Show reports of train_gpt side by side",
            .flags = {{.flags = {{.names = "REPORT",
                                  .value = paths.get(),
                                  .help = "Files written by train_gpt --report"},
                                 {.names = "--simulated",
                                  .value = simulated.get(),
                                  .help = "Also show what one core per rank would reach, simulated "
                                          "from measured passes"}}}},
            .run = [=](const GivenFlags&) { compare(*paths, *simulated); }};
}

}  // namespace vocabpipe::tool
