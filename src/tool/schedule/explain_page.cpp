// SPDX-License-Identifier: Apache-2.0
#include "src/tool/schedule/explain_page.hpp"

#include "src/imported/what_if.hpp"
#include "src/schedule/explain/time_use.hpp"
#include "src/schedule/pass_colors.hpp"
#include "src/schedule/place_text.hpp"
#include "src/support/html_text.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/support/html_page.hpp"
#include "src/tool/support/text.hpp"
#include "vocabpipe/svg_timeline.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe::tool {

namespace {

constexpr const char* kStyle = R"(
.wide { overflow-x: auto; margin: 8px 0; } svg { width: 100%; min-width: 620px; height: auto; }
.bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 4px 10px;
  align-items: center; font-variant-numeric: tabular-nums; margin: 8px 0; }
.bar { display: flex; height: 16px; background: var(--open); border-radius: 2px; overflow: hidden; }
.bar i { display: block; height: 100%; border-right: 1px solid var(--open); }
.wait { background: repeating-linear-gradient(45deg, var(--out) 0 2px, transparent 2px 6px); }
.length { background: var(--accent); } .recorded { background: var(--out); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; font-size: 12px; color: var(--soft); }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 5px;
  vertical-align: -1px; }
.shares td { padding: 2px 8px 2px 0; } .shares th { text-align: left; font-weight: 600; padding: 2px 8px 4px 0; }
.shares .cell { min-width: 128px; padding: 2px 6px; border-radius: 2px; }
)";

/// Shorter parts of a bar than this are not drawn.
constexpr double kLeastPart = 0.0005;

double part_of(int64_t ns, int64_t whole_ns) {
    return whole_ns > 0 ? static_cast<double>(ns) / static_cast<double>(whole_ns) : 0;
}

std::string percent(double part) {
    return format("%.1f %%", 100 * part);
}

/// A colored box: a kind of passes by its color, waits hatched. `style`: CSS besides.
std::string box(std::string_view name, bool wait, const std::string& style,
                const std::string& hint) {
    std::string text = html_text(hint);
    // Names of a trace may have any characters.
    std::erase(text, '"');
    return std::string("<i class=\"") + (wait ? "wait" : "") + "\" style=\"" + style +
           (wait ? "" : ";background:" + std::string(kPassColors[pass_color(name)].fill)) +
           "\" title=\"" + text + "\"></i>";
}

/// Draws shares of a whole, and remembers what it drew.
class Shares {
public:
    explicit Shares(int64_t whole_ns) : whole_ns_(whole_ns) {}

    std::string add(const std::vector<RankTimeUse::Share>& shares, bool waits) {
        std::string parts;
        for (const RankTimeUse::Share& share : shares) {
            const double part = part_of(share.ns, whole_ns_);
            if (part < kLeastPart) continue;
            const std::pair<std::string, bool> entry(share.name, waits || is_wait(share.name));
            if (std::ranges::find(drawn_, entry) == drawn_.end()) drawn_.push_back(entry);
            parts += box(entry.first, entry.second, "width:" + format("%.2f%%", 100 * part),
                         share.name + " " + percent(part));
        }
        return parts;
    }

    [[nodiscard]] std::string legend() const {
        std::string entries;
        std::vector<std::pair<std::string, bool>> passes_first = drawn_;
        std::ranges::stable_sort(passes_first, {}, &std::pair<std::string, bool>::second);
        for (const auto& [name, wait] : passes_first) {
            const PassColor& color = kPassColors[pass_color(name)];
            const std::string word =
                wait || color.letter.empty() ? name : name + " " + std::string(color.word);
            entries += "<span>" + box(name, wait, "", word) + html_text(word) + "</span>\n";
        }
        return "<div class=\"legend\">" + entries + "</div>\n";
    }

private:
    /// The critical path lists passes and waits together; names of waits are words.
    static bool is_wait(std::string_view name) { return name.find(' ') != std::string_view::npos; }
    int64_t whole_ns_;
    std::vector<std::pair<std::string, bool>> drawn_;
};

std::string bar(const std::string& label, const std::string& parts, const std::string& value) {
    return "<span>" + html_text(label) + "</span><div class=\"bar\">" + parts + "</div><span>" +
           html_text(value) + "</span>\n";
}

std::string heading(const std::string& title, const std::string& text) {
    return "<h2>" + html_text(title) + "</h2>\n<p>" + html_text(text) + "</p>\n";
}

std::string passes_section(const RecordedRun& run) {
    return heading("Passes", "One row per rank; the red line is the critical path.") +
           "<div class=\"wide\">" + svg_timeline({&run, 1}, {.critical_path = true}) + "</div>\n";
}

std::string ranks_section(const RecordedRun& run, int64_t makespan_ns) {
    Shares shares(makespan_ns);
    std::string bars;
    const std::vector<RankTimeUse> ranks = time_use(run);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        const RankTimeUse& use = ranks[rank];
        bars += bar(rank_text(run.mesh, static_cast<int>(rank)),
                    shares.add(use.passes, false) + shares.add(use.waits, true),
                    "computes " + percent(part_of(use.busy_ns, makespan_ns)));
    }
    const std::string path = shares.add(critical_path_use(run), false);
    return heading("Where the time went",
                   "Colors are passes; hatched is time in which a rank waited, by what it waited "
                   "for. The last bar is the critical path, which everything else waited for.") +
           "<div class=\"bars\">" + bars + bar("critical path", path, "") + "</div>\n" +
           shares.legend();
}

std::string outcomes_section(const imported::WhatIf& found, const TimeText& time) {
    std::vector<imported::Outcome> all{
        {"recorded", found.measured_ns},
        {"replayed, every pass with its own time", found.own_ns},
        {"replayed, passes with the mean of their kind", found.mean_ns}};
    std::ranges::copy(imported::outcomes(found), std::back_inserter(all));
    all.push_back({"no order of the same passes takes less than", found.bound_ns});
    const int64_t longest = std::ranges::max_element(all, {}, &imported::Outcome::ns)->ns;
    std::string bars;
    for (const imported::Outcome& one : all) {
        const bool recorded = &one == all.data();
        bars += bar(
            one.condition,
            std::string("<i class=\"") + (recorded ? "recorded" : "length") +
                "\" style=\"width:" + format("%.2f%%", 100 * part_of(one.ns, longest)) + "\"></i>",
            time(one.ns) +
                (recorded ? "" : " (" + imported::change_text(one.ns, found.measured_ns) + ")"));
    }
    return heading("How long the step could have been",
                   "From the first begin to the last end of a pass, simulated with the times of "
                   "this run.") +
           "<div class=\"bars\">" + bars + "</div>\n";
}

std::string alternatives_section(const imported::WhatIf& found, const TimeText& time) {
    if (found.alternatives.empty()) return "";
    const imported::AlternativeTable table = imported::alternative_table(found);
    const int64_t longest =
        std::ranges::max_element(found.alternatives, {}, &imported::Alternative::step_ns)->step_ns;
    std::string rows = "<tr><th>schedule</th>";
    for (const VocabMode mode : table.modes) {
        rows += "<th>" + html_text(std::string(to_string(mode))) + "</th>";
    }
    rows += "<th>activations</th></tr>\n";
    for (const imported::AlternativeTable::Row& row : table.rows) {
        rows += "<tr><td>" + html_text(row.schedule) + "</td>";
        for (const imported::Alternative* const one : row.of_mode) {
            if (one == nullptr) {
                rows += "<td>-</td>";
                continue;
            }
            const std::string width = format("%.1f%%", 100 * part_of(one->step_ns, longest));
            rows += "<td class=\"cell\" style=\"background:linear-gradient(90deg,var(--open) " +
                    width + ",transparent " + width + ")\">" +
                    html_text(time(one->step_ns) + " " +
                              imported::change_text(one->step_ns, found.mean_ns)) +
                    "</td>";
        }
        rows += "<td>" + format("%.1f", row.activations) + "</td></tr>\n";
    }
    std::string text = imported::alternatives_text(found, time);
    text.front() = 'O';
    return heading("Other schedules", text + ".") + "<div class=\"wide\"><table class=\"shares\">" +
           rows + "</table></div>\n";
}

}  // namespace

std::string ExplainPage::html() const {
    const TimelineSummary summary = summarize(run);
    std::string body = passes_section(run) + ranks_section(run, summary.makespan_ns);
    if (found != nullptr) {
        body += outcomes_section(*found, time) + alternatives_section(*found, time);
    } else if (!no_replay.empty()) {
        body += heading("How long the step could have been", no_replay);
    }
    return HtmlPage{.title = one_line(run.title),
                    .facts = {{"ranks", std::to_string(run.ranks)},
                              {"from first begin to last end", time(summary.makespan_ns)},
                              {"time without a pass", percent(summary.bubble)}},
                    .style = kStyle,
                    .body = std::move(body)}
        .html();
}

}  // namespace vocabpipe::tool
