// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/files/cell.hpp"
#include "src/schedule/files/csv_header.hpp"
#include "src/schedule/files/tokens.hpp"
#include "src/schedule/files/user_schedule.hpp"
#include "src/support/joined.hpp"
#include "src/support/strict_json.hpp"
#include "vocabpipe/schedule_file.hpp"

#include <utility>

namespace vocabpipe {

namespace {

constexpr std::string_view kFormat = "vocabpipe schedule";
constexpr int kFileVersion = 1;
constexpr int64_t kMostRanks = 65535;
constexpr int64_t kMostRows = int64_t{1} << 40;
constexpr size_t kMostPasses = size_t{1} << 30;

class JsonReader {
public:
    JsonReader(const StrictJson& root, const ReadScheduleOptions& options)
        : root_(root), options_(options) {}

    ScheduleFile run() {
        root_.only({"format", "version", "ranks", "stages", "microbatches", "rank_of_stage",
                    "barriers", "input", "output", "passes"});
        if (const StrictJson format = root_.at("format"); format.text() != kFormat) {
            format.fail("must be \"" + std::string(kFormat) + "\"");
        }
        (void)root_.at("version").integer(kFileVersion, kFileVersion);
        Schedule& schedule = schedule_;
        schedule.ranks = number("ranks", kMostRanks);
        if (options_.ranks > 0 && schedule.ranks != options_.ranks) {
            root_.at("ranks").fail("is " + std::to_string(schedule.ranks) + ", but expected " +
                                   std::to_string(options_.ranks) + " ranks");
        }
        schedule.stages = number("stages", files::kLastStage + 1);
        schedule.microbatches = number("microbatches", files::kLastMicrobatch + 1);
        for (const StrictJson& rank : list("rank_of_stage", schedule.stages)) {
            schedule.rank_of_stage.push_back(static_cast<int>(rank.integer(0, schedule.ranks - 1)));
        }
        const StrictJson barriers = root_.at("barriers");
        try {
            schedule.barriers = files::barriers_from(barriers.text());
        } catch (const files::CellError& error) {
            barriers.fail(error.what());
        }
        schedule.input = shard_map("input");
        schedule.output = shard_map("output");
        for (const StrictJson& passes : list("passes", schedule.ranks)) read_rank(passes);
        if (auto violation = files::find_user_violation(schedule)) fail(*violation);
        return {std::move(schedule), {}};
    }

private:
    int number(const char* key, int64_t most) const {
        return static_cast<int>(root_.at(key).integer(1, most));
    }

    std::vector<StrictJson> list(const char* key, int entries) const {
        const auto wanted = static_cast<size_t>(entries);
        std::vector<StrictJson> items = root_.at(key).items(wanted);
        if (items.size() != wanted) {
            root_.at(key).fail("has " + std::to_string(items.size()) + " entries; expected " +
                               std::to_string(wanted));
        }
        return items;
    }

    ShardMap shard_map(const char* key) const {
        ShardMap map;
        for (const StrictJson& row : list(key, schedule_.ranks + 1)) {
            map.first_row.push_back(row.integer(0, kMostRows));
        }
        return map;
    }

    void read_rank(const StrictJson& list) {
        std::vector<Pass>& passes = schedule_.passes.emplace_back();
        std::vector<StrictJson>& places = places_.emplace_back();
        for (const StrictJson& element : list.items(kMostPasses)) {
            const std::string text = element.text();
            try {
                const files::RawCell cell = files::parse_cell(text);
                if (cell.actions.empty()) throw files::CellError("omit idle steps");
                for (const files::RawAction& action : cell.actions) {
                    const files::Meaning meaning =
                        files::meaning_of(cell, action, CsvDialect::vocabpipe);
                    passes.push_back(meaning.pass.value());
                    passes.back().with_next = cell.pair && &action == &cell.actions.front();
                    places.push_back(element);
                }
            } catch (const files::CellError& error) {
                element.fail(files::shown(text) + ": " + error.what());
            }
        }
    }

    [[noreturn]] void fail(const Violation& violation) const {
        if (violation.rank < 0) root_.fail(violation.message());
        const auto rank = static_cast<size_t>(violation.rank);
        const std::string reason = violation.pass + " " + violation.reason;
        if (violation.index >= 0) places_[rank][static_cast<size_t>(violation.index)].fail(reason);
        root_.at("passes").items(places_.size())[rank].fail(reason);
    }

    const StrictJson& root_;
    const ReadScheduleOptions& options_;
    Schedule schedule_;
    std::vector<std::vector<StrictJson>> places_;  ///< [rank][position]
};

template <typename T>
std::string list_of(const std::vector<T>& values) {
    return "[" + joined(values) + "]";
}

}  // namespace

ScheduleFile parse_schedule_json(std::string_view text, const std::string& name,
                                 const ReadScheduleOptions& options) {
    return JsonReader(StrictJson::parse(text, name), options).run();
}

std::string print_schedule_json(const Schedule& schedule) {
    const auto number = [](const char* key, int value) {
        return "  \"" + std::string(key) + "\": " + std::to_string(value) + ",\n";
    };
    std::string text = "{\n  \"format\": \"" + std::string(kFormat) + "\",\n";
    text += number("version", kFileVersion) + number("ranks", schedule.ranks) +
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
