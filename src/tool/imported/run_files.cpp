// SPDX-License-Identifier: Apache-2.0
#include "src/tool/imported/run_files.hpp"

#include "src/imported/built_in_rules.hpp"
#include "src/imported/kineto.hpp"
#include "src/imported/nsys_database.hpp"
#include "src/imported/nsys_ranges.hpp"
#include "src/imported/operations.hpp"
#include "src/imported/otlp.hpp"
#include "src/support/named_text.hpp"
#include "src/tool/support/long_work.hpp"
#include "src/tool/support/toml_reader.hpp"
#include "src/train/text/text_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

namespace vocabpipe::tool {

namespace {

constexpr size_t kMostBytes = size_t{8} << 30;  // as traces of VocabPipe

using Ranks = std::vector<imported::RankRanges>;

/// A kind of files that is recognized by how they begin.
struct FileKind {
    bool (*is)(std::string_view head);
    const char* rules;  ///< that its ranges usually follow
    Ranks (*read)(const std::string& path, const ImportFlags& flags);
};

constexpr std::array<FileKind, 5> kFileKinds{
    {{imported::is_kineto, "torch",
      [](const std::string& path, const ImportFlags&) {
          return Ranks{imported::read_kineto(read_imported_text(path), path)};
      }},
     {imported::is_otlp, "megatron",
      [](const std::string& path, const ImportFlags&) {
          return imported::read_otlp(read_imported_text(path), path);
      }},
     {imported::is_nsys_database, "megatron",
      [](const std::string& path, const ImportFlags&) {
          return imported::read_nsys_database(path);
      }},
     {imported::is_nsys_ranges, "megatron",
      [](const std::string& path, const ImportFlags&) {
          return Ranks{imported::read_nsys_ranges(read_imported_text(path), path)};
      }},
     {imported::is_operations, "operations", [](const std::string& path, const ImportFlags& flags) {
          return imported::read_operations(read_imported_text(path), path, flags.replica);
      }}}};

/// Null: none. Throws InputFileError if the file cannot be read.
const FileKind* kind_of(const std::string& path) {
    // Profilers describe their devices first, so read more than a few bytes.
    constexpr size_t kHead = size_t{1} << 20;
    struct Enough {};
    std::string head;
    try {
        read_text_file(path, [&](std::string_view part) {
            head += part;
            if (head.size() >= kHead) throw Enough();
        });
    } catch (const Enough&) {
    }
    const auto* const found =
        std::ranges::find_if(kFileKinds, [&](const FileKind& kind) { return kind.is(head); });
    return found == kFileKinds.end() ? nullptr : found;
}

imported::RangeRules read_rules(const std::string& name) {
    const NamedText text = named_text("--rules", name, embedded::range_rules());
    std::vector<std::pair<std::string, std::vector<std::string>>> keys;
    try {
        for (TomlAssignment& assignment : read_toml(text.text)) {
            keys.emplace_back(std::move(assignment.key), std::move(assignment.values));
        }
        return imported::make_range_rules(text.name, keys);
    } catch (const TomlError& error) {
        throw InputFileError(name + ":" + std::to_string(error.line) + ": " + error.what());
    } catch (const UsageError& error) {
        throw InputFileError(name + ": " + error.what());
    }
}

/// Puts the files in the order of their ranks.
void order_ranks(std::vector<imported::RankRanges>& ranks) {
    const bool known = std::ranges::all_of(ranks, [](const auto& one) { return one.rank >= 0; });
    if (!known) return;
    std::ranges::stable_sort(ranks, {}, &imported::RankRanges::rank);
    for (size_t i = 0; i < ranks.size(); ++i) {
        if (ranks[i].rank == static_cast<int>(i)) continue;
        if (i > 0 && ranks[i].rank == ranks[i - 1].rank) {
            throw InputFileError(ranks[i].file + ": is of rank " + std::to_string(ranks[i].rank) +
                                 ", as is " + ranks[i - 1].file + "; give one file of every rank");
        }
        throw InputFileError(ranks[i].file + ": is of rank " + std::to_string(ranks[i].rank) +
                             ", but no file is of rank " + std::to_string(i) +
                             "; give the files of all ranks");
    }
}

}  // namespace

std::string read_imported_text(const std::string& path) {
    std::string text;
    read_text_file(path, [&](std::string_view part) {
        if (part.size() > kMostBytes - text.size()) {
            throw InputFileError(path + ": has more than " + std::to_string(kMostBytes >> 30) +
                                 " GiB; record fewer steps");
        }
        text += part;
    });
    return text;
}

FlagGroup recorded_step_flags(ImportFlags& flags) {
    return {.title = "Runs of other trainers",
            .flags = {{.names = "--rules",
                       .value = &flags.rules,
                       .help = "Which range is which pass: built-in rules (" +
                               names_of(embedded::range_rules()) + ") or a TOML file",
                       .unit = "NAME|FILE",
                       .unset = "those of the kind of the files"},
                      {.names = "--step",
                       .value = &flags.step,
                       .help = "Which of the recorded steps, from 0",
                       .range = at_least(0),
                       .unset = "the one with the median length",
                       .absent = -1},
                      {.names = "--replica",
                       .value = &flags.replica,
                       .help = "Which replica, of files that have several",
                       .range = at_least(0)}}};
}

FlagGroup import_flags(ImportFlags& flags) {
    FlagGroup group = recorded_step_flags(flags);
    group.flags.push_back({.names = "--microbatches",
                           .value = &flags.microbatches,
                           .help = "Microbatches of a step, where the names of ranges do not say "
                                   "it",
                           .range = between(1, 65536),
                           .absent = 0});
    return group;
}

bool is_imported_run(const std::string& path) {
    std::error_code none_there;
    if (!std::filesystem::is_regular_file(path, none_there)) return false;
    try {
        return kind_of(path) != nullptr;
    } catch (const InputFileError&) {
        return false;
    }
}

imported::MeasuredRun read_imported_run(const std::vector<std::string>& files,
                                        const ImportFlags& flags) {
    std::vector<imported::RankRanges> ranks;
    std::string rules = flags.rules;
    for (const std::string& path : files) {
        const LongWork work("reading " + path);
        const FileKind* const kind = kind_of(path);
        if (kind == nullptr) {
            throw InputFileError(path +
                                 ": is of no known kind; use traces of torch.profiler, what nsys "
                                 "export or nsys stats wrote, OTLP JSON or a table of operations");
        }
        if (rules.empty()) rules = kind->rules;
        std::ranges::move(kind->read(path, flags), std::back_inserter(ranks));
    }
    order_ranks(ranks);
    return imported::find_passes(std::move(ranks), read_rules(rules),
                                 {.microbatches = flags.microbatches});
}

RecordedRun imported_step(const imported::MeasuredRun& run, const ImportFlags& flags) {
    const size_t steps = run.steps.size();
    if (flags.step >= 0 && static_cast<size_t>(flags.step) >= steps) {
        throw UsageError("--step " + std::to_string(flags.step) +
                         ": the files have the steps 0 to " + std::to_string(steps - 1));
    }
    const size_t step = flags.step >= 0 ? static_cast<size_t>(flags.step) : run.median_step();
    RecordedRun recorded = imported::record_step(run, step);
    recorded.title += ", step " + std::to_string(step) + " of " + std::to_string(steps);
    return recorded;
}

}  // namespace vocabpipe::tool
