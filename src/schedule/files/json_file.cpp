// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/files/cell.hpp"
#include "src/schedule/files/csv_header.hpp"
#include "src/schedule/files/tokens.hpp"
#include "src/schedule/files/user_schedule.hpp"
#include "src/support/nearest_name.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/schedule_file.hpp"

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

namespace vocabpipe {

namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "vocabpipe schedule";
constexpr int kVersion = 1;
constexpr int64_t kMostRows = int64_t{1} << 40;
constexpr std::array<std::string_view, 10> kKeys{
    "format",        "version",  "ranks", "stages", "microbatches",
    "rank_of_stage", "barriers", "input", "output", "passes"};

class JsonReader {
public:
    JsonReader(const std::string& name, const ReadScheduleOptions& options)
        : name_(name), options_(options) {}

    ScheduleFile run(std::string_view text) {
        const json root = parse(text);
        if (!root.is_object()) fail("", "is " + kind(root) + ", must be an object");
        for (const auto& item : root.items()) check_key(item.key());
        if (text_at(root, "format") != kFormat) {
            fail("format", "must be \"" + std::string(kFormat) + "\"");
        }
        if (const int64_t version = integer(at(root, "version"), "version", 1, kAny);
            version != kVersion) {
            fail("version", "is " + std::to_string(version) + "; this build reads version 1");
        }
        Schedule schedule;
        schedule.ranks = static_cast<int>(integer(at(root, "ranks"), "ranks", 1, 65535));
        if (options_.ranks > 0 && schedule.ranks != options_.ranks) {
            fail("ranks", "is " + std::to_string(schedule.ranks) + ", but " +
                              std::to_string(options_.ranks) + " ranks are asked for");
        }
        schedule.stages =
            static_cast<int>(integer(at(root, "stages"), "stages", 1, files::kLastStage + 1));
        schedule.microbatches = static_cast<int>(
            integer(at(root, "microbatches"), "microbatches", 1, files::kLastMicrobatch + 1));
        for (const int64_t rank :
             integers(root, "rank_of_stage", schedule.stages, schedule.ranks - 1)) {
            schedule.rank_of_stage.push_back(static_cast<int>(rank));
        }
        try {
            schedule.barriers = files::barriers_from(text_at(root, "barriers"));
        } catch (const files::CellError& error) {
            fail("barriers", error.what());
        }
        schedule.input.first_row = integers(root, "input", schedule.ranks + 1, kMostRows);
        schedule.output.first_row = integers(root, "output", schedule.ranks + 1, kMostRows);
        read_passes(at(root, "passes"), schedule);
        if (auto violation = find_violation(schedule)) fail(*violation);
        if (auto violation = files::find_pair_violation(schedule)) fail(*violation);
        return {std::move(schedule), {}};
    }

private:
    static constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

    [[noreturn]] void fail(const std::string& path, const std::string& reason) const {
        throw InputFileError(name_ + ": " + (path.empty() ? "" : path + ": ") + reason);
    }

    [[noreturn]] void fail(const Violation& violation) const {
        if (violation.rank < 0) fail("", violation.message());
        std::string path = "passes[" + std::to_string(violation.rank) + "]";
        if (violation.index >= 0) {
            const auto rank = static_cast<size_t>(violation.rank);
            const auto index = static_cast<size_t>(violation.index);
            path += "[" + std::to_string(element_[rank][index]) + "]";
        }
        fail(path, violation.pass + " " + violation.reason);
    }

    json parse(std::string_view text) const {
        std::set<std::string> seen;
        std::string twice;
        const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
            if (event == json::parse_event_t::key && depth == 1) {
                auto key = parsed.get<std::string>();
                if (!seen.insert(key).second && twice.empty()) twice = std::move(key);
            }
            return true;
        };
        try {
            json root = json::parse(text, watch);
            if (!twice.empty()) fail(files::shown(twice), "appears twice");
            return root;
        } catch (const json::exception& error) {
            // "[json.exception.parse_error.101] parse error at line 2, column 3: ..."
            std::string reason = error.what();
            if (const size_t end = reason.find("] "); end != std::string::npos) {
                reason.erase(0, end + 2);
            }
            constexpr size_t kMost = 200;
            if (reason.size() > kMost) reason.resize(kMost);
            for (char& c : reason) c = c >= 0x20 && c < 0x7f ? c : '?';
            fail("", "is not JSON: " + reason);
        }
    }

    void check_key(const std::string& key) const {
        for (const std::string_view known : kKeys) {
            if (key == known) return;
        }
        fail(files::shown(key), "is not a key of a schedule" + did_you_mean(key, kKeys));
    }

    static std::string kind(const json& value) {
        return std::string(value.is_array() || value.is_object() ? "an " : "a ") +
               value.type_name();
    }

    const json& at(const json& root, const char* key) const {
        const auto found = root.find(key);
        if (found == root.end()) fail(key, "is missing");
        return *found;
    }

    std::string text_at(const json& root, const char* key) const {
        const json& value = at(root, key);
        if (!value.is_string()) fail(key, "is " + kind(value) + ", must be a string");
        return value.get<std::string>();
    }

    int64_t integer(const json& value, const std::string& path, int64_t least, int64_t most) const {
        if (!value.is_number_integer()) fail(path, "is " + kind(value) + ", must be an integer");
        const bool huge =
            value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kAny);
        if (huge || value.get<int64_t>() < least || value.get<int64_t>() > most) {
            fail(path, "is " + value.dump() + ", must be from " + std::to_string(least) + " to " +
                           std::to_string(most));
        }
        return value.get<int64_t>();
    }

    const json& array_at(const json& value, const std::string& path, int entries) const {
        if (!value.is_array()) fail(path, "is " + kind(value) + ", must be an array");
        if (entries >= 0 && value.size() != static_cast<size_t>(entries)) {
            fail(path, "has " + std::to_string(value.size()) + " entries, must have " +
                           std::to_string(entries));
        }
        return value;
    }

    std::vector<int64_t> integers(const json& root, const char* key, int entries,
                                  int64_t most) const {
        std::vector<int64_t> values;
        for (const json& value : array_at(at(root, key), key, entries)) {
            const std::string path = std::string(key) + "[" + std::to_string(values.size()) + "]";
            values.push_back(integer(value, path, 0, most));
        }
        return values;
    }

    void read_passes(const json& ranks, Schedule& schedule) {
        for (const json& list : array_at(ranks, "passes", schedule.ranks)) {
            const std::string of_rank = "passes[" + std::to_string(schedule.passes.size()) + "]";
            std::vector<Pass>& passes = schedule.passes.emplace_back();
            std::vector<size_t>& elements = element_.emplace_back();
            array_at(list, of_rank, -1);
            for (size_t i = 0; i < list.size(); ++i) {
                read_element(list[i], of_rank + "[" + std::to_string(i) + "]", passes);
                elements.resize(passes.size(), i);
            }
        }
    }

    void read_element(const json& element, const std::string& path,
                      std::vector<Pass>& passes) const {
        if (!element.is_string()) fail(path, "is " + kind(element) + ", must be a string");
        const auto& text = element.get_ref<const std::string&>();
        try {
            const files::RawCell cell = files::parse_cell(text);
            if (cell.actions.empty()) throw files::CellError("is empty; leave idle steps out");
            for (const files::RawAction& action : cell.actions) {
                Pass pass = *files::meaning_of(cell, action, CsvDialect::vocabpipe).pass;
                pass.with_next = cell.pair && &action == &cell.actions.front();
                passes.push_back(pass);
            }
        } catch (const files::CellError& error) {
            fail(path, files::shown(text) + " " + error.what());
        }
    }

    const std::string& name_;
    const ReadScheduleOptions& options_;
    std::vector<std::vector<size_t>> element_;  ///< [rank][position] index in the file's array
};

template <typename T>
std::string list_of(const std::vector<T>& values) {
    std::string text;
    for (const T& value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
    return "[" + text + "]";
}

}  // namespace

ScheduleFile parse_schedule_json(std::string_view text, const std::string& name,
                                 const ReadScheduleOptions& options) {
    return JsonReader(name, options).run(text);
}

std::string print_schedule_json(const Schedule& schedule) {
    const auto number = [](const char* key, int value) {
        return "  \"" + std::string(key) + "\": " + std::to_string(value) + ",\n";
    };
    std::string text = "{\n  \"format\": \"" + std::string(kFormat) + "\",\n";
    text += number("version", kVersion) + number("ranks", schedule.ranks) +
            number("stages", schedule.stages) + number("microbatches", schedule.microbatches);
    text += "  \"rank_of_stage\": " + list_of(schedule.rank_of_stage) + ",\n";
    text += "  \"barriers\": \"" + std::string(files::to_string(schedule.barriers)) + "\",\n";
    text += "  \"input\": " + list_of(schedule.input.first_row) + ",\n";
    text += "  \"output\": " + list_of(schedule.output.first_row) + ",\n";
    text += "  \"passes\": [";
    for (size_t rank = 0; rank < schedule.passes.size(); ++rank) {
        text += rank == 0 ? "\n    [" : ",\n    [";
        bool first = true;
        for (const std::string& token :
             files::tokens_of(schedule.passes[rank], CsvDialect::vocabpipe)) {
            if (!std::exchange(first, false)) text += ", ";
            text += '"' + token + '"';
        }
        text += ']';
    }
    return text + "\n  ]\n}\n";
}

}  // namespace vocabpipe
