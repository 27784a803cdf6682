// SPDX-License-Identifier: Apache-2.0
#include "src/imported/what_if.hpp"
#include "src/support/text_layout.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe::imported {

namespace {

/// Ranks whose passes cost the step less than this are no stragglers.
constexpr double kLeastGain = 0.005;

std::string table_of(const WhatIf& found, const TimeText& time) {
    const AlternativeTable alternatives = alternative_table(found);
    TextTable table;
    std::vector<std::string> head{"schedule"};
    for (const VocabMode mode : alternatives.modes) head.emplace_back(to_string(mode));
    head.emplace_back("activations");
    table.row(std::move(head), {true});
    for (const AlternativeTable::Row& row : alternatives.rows) {
        std::vector<std::string> cells{row.schedule};
        for (const Alternative* const one : row.of_mode) {
            cells.push_back(
                one == nullptr
                    ? "-"
                    : time(one->step_ns) +
                          format(" %+.0f %%", 100 * (static_cast<double>(one->step_ns) /
                                                         static_cast<double>(found.mean_ns) -
                                                     1)));
        }
        cells.push_back(format("%.1f", row.activations));
        table.row(std::move(cells));
    }
    return table.text();
}

}  // namespace

std::string change_text(int64_t ns, int64_t from_ns) {
    return format("%+.1f %%", 100 * (static_cast<double>(ns) / static_cast<double>(from_ns) - 1));
}

std::vector<Outcome> outcomes(const WhatIf& found) {
    std::vector<Outcome> all{{"without these gaps", found.gapless_ns},
                             {"with no pass longer than the median of its kind", found.even_ns}};
    const auto own = static_cast<double>(found.own_ns);
    for (size_t rank = 0; rank < found.without_slow_rank_ns.size(); ++rank) {
        const int64_t ns = found.without_slow_rank_ns[rank];
        if (static_cast<double>(ns) > (1 - kLeastGain) * own) continue;
        all.push_back({"with rank " + std::to_string(rank) + " as fast as the median rank", ns});
    }
    return all;
}

AlternativeTable alternative_table(const WhatIf& found) {
    AlternativeTable table;
    for (const Alternative& one : found.alternatives) table.modes.push_back(one.mode);
    std::ranges::sort(table.modes);
    // Not std::ranges::unique, which clang 14 does not compile.
    table.modes.erase(std::unique(table.modes.begin(), table.modes.end()), table.modes.end());
    for (const Alternative& one : found.alternatives) {
        auto row = std::ranges::find(table.rows, one.schedule, &AlternativeTable::Row::schedule);
        if (row == table.rows.end()) {
            row = table.rows.insert(
                row, {.schedule = one.schedule, .of_mode = {table.modes.size(), nullptr}});
        }
        const auto column = std::ranges::find(table.modes, one.mode) - table.modes.begin();
        row->of_mode[static_cast<size_t>(column)] = &one;
        row->activations = std::max(row->activations, one.activations);
    }
    return table;
}

std::string alternatives_text(const WhatIf& found, const TimeText& time) {
    std::string text = "other schedules and shares of the vocabulary, against " +
                       time(found.mean_ns) + " and with the same mean times";
    if (found.output_layer_share > 0) {
        text += format("; output layer and loss: %.1f %% of the last stage",
                       100 * found.output_layer_share);
        if (found.share_is_estimated) {
            text += ", by which it is slower than the median of the others";
        }
        return text;
    }
    return text +
           "; the share of the output layer is not known, so none says what vocabulary "
           "parallelism would save: add --output-layer-share";
}

std::string to_text(const WhatIf& found, const TimeText& time) {
    const auto with_change = [&](int64_t ns) {
        return time(ns) + " (" + change_text(ns, found.measured_ns) + ")";
    };
    std::string text =
        "replay of these passes in the simulator, against " + time(found.measured_ns) +
        " from the first begin to the last end of a pass: " + with_change(found.own_ns) +
        " with the time of every pass and of the gap before it, " + with_change(found.mean_ns) +
        " with the mean of each kind\n";
    text += "no order of the same passes on the same ranks takes less than " +
            with_change(found.bound_ns) + "\n";
    const std::vector<Outcome> all = outcomes(found);
    for (const Outcome& one : all) text += one.condition + ": " + with_change(one.ns) + "\n";
    constexpr size_t kWithoutStragglers = 2;
    if (all.size() == kWithoutStragglers) {
        text += "no rank alone makes the step longer by half a percent\n";
    }
    if (found.alternatives.empty()) return text;
    return text + "\n" + alternatives_text(found, time) + "\n\n" + table_of(found, time);
}

}  // namespace vocabpipe::imported
