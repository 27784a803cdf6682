// SPDX-License-Identifier: Apache-2.0
#include "src/imported/what_if.hpp"
#include "src/support/text_layout.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace vocabpipe::imported {

namespace {

/// Ranks whose passes cost the step less than this are no stragglers.
constexpr double kLeastGain = 0.005;

/// "-12.3 %" of the measured step.
std::string change(int64_t ns, int64_t measured_ns) {
    return format("%+.1f %%",
                  100 * (static_cast<double>(ns) / static_cast<double>(measured_ns) - 1));
}

std::string table_of(const WhatIf& found, const TimeText& time) {
    std::map<std::string, std::map<VocabMode, const Alternative*>> rows;
    std::vector<std::string> order;
    std::vector<VocabMode> modes;
    for (const Alternative& one : found.alternatives) {
        if (rows[one.schedule].empty()) order.push_back(one.schedule);
        rows[one.schedule][one.mode] = &one;
        if (std::ranges::find(modes, one.mode) == modes.end()) modes.push_back(one.mode);
    }
    std::ranges::sort(modes);
    TextTable table;
    std::vector<std::string> head{"schedule"};
    for (const VocabMode mode : modes) {
        head.emplace_back(to_string(mode));
    }
    head.emplace_back("activations");
    table.row(std::move(head), {true});
    for (const std::string& name : order) {
        std::vector<std::string> cells{name};
        double most = 0;
        for (const VocabMode mode : modes) {
            const auto at = rows[name].find(mode);
            if (at == rows[name].end()) {
                cells.emplace_back("-");
                continue;
            }
            cells.push_back(time(at->second->step_ns) +
                            format(" %+.0f %%", 100 * (static_cast<double>(at->second->step_ns) /
                                                           static_cast<double>(found.mean_ns) -
                                                       1)));
            most = std::max(most, at->second->activations);
        }
        cells.push_back(format("%.1f", most));
        table.row(std::move(cells));
    }
    return table.text();
}

}  // namespace

std::string to_text(const WhatIf& found, const TimeText& time) {
    const auto with_change = [&](int64_t ns) {
        return time(ns) + " (" + change(ns, found.measured_ns) + ")";
    };
    std::string text =
        "replay of these passes in the simulator, against " + time(found.measured_ns) +
        " from the first begin to the last end of a pass: " + with_change(found.own_ns) +
        " with the time of every pass and of the gap before it, " + with_change(found.mean_ns) +
        " with the mean of each kind\n";
    text += "no order of the same passes on the same ranks takes less than " +
            with_change(found.bound_ns) + "\n";
    text += "without these gaps: " + with_change(found.gapless_ns) + "\n";
    text += "with no pass longer than the median of its kind: " + with_change(found.even_ns) + "\n";
    const auto own = static_cast<double>(found.own_ns);
    bool straggler = false;
    for (size_t rank = 0; rank < found.without_slow_rank_ns.size(); ++rank) {
        const int64_t ns = found.without_slow_rank_ns[rank];
        if (static_cast<double>(ns) > (1 - kLeastGain) * own) continue;
        straggler = true;
        text += "with rank " + std::to_string(rank) +
                " as fast as the median rank: " + with_change(ns) + "\n";
    }
    if (!straggler) text += "no rank alone makes the step longer by half a percent\n";
    if (found.alternatives.empty()) return text;
    text += "\nother schedules and shares of the vocabulary, against " + time(found.mean_ns) +
            " and with "
            "the same mean times";
    if (found.output_layer_share > 0) {
        text += format("; output layer and loss: %.1f %% of the last stage",
                       100 * found.output_layer_share);
        if (found.share_is_estimated) {
            text += ", by which it is slower than the median of the others";
        }
    } else {
        text +=
            "; the share of the output layer is not known, so none says what vocabulary "
            "parallelism would save: add --output-layer-share";
    }
    return text + "\n\n" + table_of(found, time);
}

}  // namespace vocabpipe::imported
