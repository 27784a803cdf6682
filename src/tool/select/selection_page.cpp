// SPDX-License-Identifier: Apache-2.0
#include "src/tool/select/selection_page.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

#include "src/support/html_text.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/support/html_page.hpp"

namespace vocabpipe::tool {

namespace {

// In units of the pictures, which are pixels unless the page is narrower.
constexpr double kWidth = 860, kHeight = 220;
constexpr double kLeft = 70, kRight = 10, kTop = 10, kBottom = 26;
constexpr size_t kMostSources = 40;  // bars: half with the largest shares, half with the smallest

constexpr const char* kStyle = R"(
.wide { overflow-x: auto; } svg { width: 100%; min-width: 620px; height: auto; font-size: 11px; }
svg text { fill: var(--soft); font-variant-numeric: tabular-nums; }
.axis { stroke: var(--line); } .chosen { fill: var(--chosen); } .out { fill: var(--out); }
.open { fill: var(--open); } .hit { fill: transparent; } .hit:hover { fill: rgb(47 107 216 / 15%); }
.curve { fill: none; stroke: var(--accent); stroke-width: 2; } .dot { fill: var(--accent); }
.mean { stroke: var(--accent); stroke-dasharray: 4 3; }
.texts { display: grid; grid-template-columns: 1fr 1fr; gap: 10px 14px; }
.texts h3 { font-size: 13px; margin: 6px 0 0; }
.text.of-chosen { border-left-color: var(--chosen); }
.chip { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin: 0 4px 0 10px; }
)";

/// A coordinate or length in a picture.
std::string at(double value) {
    return format("%.1f", value);
}

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
    return "<text x=\"" + at(x) + "\" y=\"" + at(y) + "\" text-anchor=\"" + anchor + "\">" +
           html_text(text) + "</text>\n";
}

std::string line_at(double x1, double y1, double x2, double y2, const char* kind) {
    return "<line x1=\"" + at(x1) + "\" y1=\"" + at(y1) + "\" x2=\"" + at(x2) + "\" y2=\"" +
           at(y2) + "\" class=\"" + kind + "\"/>\n";
}

/// A rectangle; `hint` is shown when the mouse is over it, unless it is empty.
std::string box(double x, double y, double width, double height, const char* kind,
                const std::string& hint) {
    return "<rect x=\"" + at(x) + "\" y=\"" + at(y) + "\" width=\"" + at(width) + "\" height=\"" +
           at(height) + "\" class=\"" + kind + "\"" +
           (hint.empty() ? "/>\n" : "><title>" + html_text(hint) + "</title></rect>\n");
}

std::string picture(double height, const std::string& body) {
    return "<div class=\"wide\"><svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " +
           at(kWidth) + " " + at(height) + "\">\n" + body + "</svg></div>\n";
}

/// After every step: selected samples from below, discarded ones from above.
std::string bounding_picture(const SelectionPage& page) {
    const double width = kWidth - kLeft - kRight;
    const double height = kHeight - kTop - kBottom;
    const auto samples = static_cast<double>(std::max<int64_t>(page.samples, 1));
    const auto y = [&](double count) { return kTop + height * (1 - count / samples); };
    const double step = width / static_cast<double>(page.steps.size());
    std::string body = box(kLeft, kTop, width, height, "open", {});
    std::string hits;
    int64_t selected = 0;
    int64_t discarded = 0;
    for (size_t i = 0; i < page.steps.size(); ++i) {
        const SelectionPage::Step& one = page.steps[i];
        (one.grow ? selected : discarded) += one.decided;
        const double x = kLeft + step * static_cast<double>(i);
        const double low = y(static_cast<double>(selected));
        const double high = y(samples - static_cast<double>(discarded));
        const std::string hint = "step " + std::to_string(i + 1) + ", " +
                                 (one.grow ? "Grow selects " : "Shrink discards ") +
                                 std::to_string(one.decided) + ": " + std::to_string(selected) +
                                 " selected, " + std::to_string(discarded) + " discarded, " +
                                 std::to_string(page.samples - selected - discarded) + " open";
        body += box(x, low, step, kTop + height - low, "chosen", {});
        body += box(x, kTop, step, high - kTop, "out", {});
        hits += box(x, kTop, step, height, "hit", hint);
    }
    body += hits;
    for (const double part : {0.0, 0.5, 1.0}) {
        body += text_at(kLeft - 6, y(samples * part) + 4, "end",
                        std::to_string(std::llround(samples * part)));
    }
    body += text_at(kLeft, kHeight - 8, "start", "step 1");
    body += text_at(kLeft + width, kHeight - 8, "end", "step " + std::to_string(page.steps.size()));
    return picture(kHeight, body);
}

std::string rounds_picture(const SelectionPage& page) {
    const double width = kWidth - kLeft - kRight;
    const double height = kHeight - kTop - kBottom;
    const auto [low, high] =
        std::minmax_element(page.rounds.begin(), page.rounds.end(),
                            [](const auto& a, const auto& b) { return a.objective < b.objective; });
    const double least = low->objective;
    const double range = std::max(high->objective - least, 1e-9);
    const auto last = static_cast<double>(std::max<size_t>(page.rounds.size() - 1, 1));
    const auto x = [&](size_t i) {
        return kLeft + 12 + (width - 24) * static_cast<double>(i) / last;
    };
    const auto y = [&](double objective) {
        return kTop + 8 + (height - 16) * (1 - (objective - least) / range);
    };
    std::string body = line_at(kLeft, kTop, kLeft, kTop + height, "axis") +
                       line_at(kLeft, kTop + height, kLeft + width, kTop + height, "axis");
    std::string points;
    std::string dots;
    for (size_t i = 0; i < page.rounds.size(); ++i) {
        const SelectionPage::Round& round = page.rounds[i];
        points += at(x(i)) + "," + at(y(round.objective)) + " ";
        dots += "<circle cx=\"" + at(x(i)) + "\" cy=\"" + at(y(round.objective)) +
                "\" r=\"4\" class=\"dot\"><title>" +
                html_text("round " + std::to_string(i + 1) + ": " + std::to_string(round.kept) +
                          " of " + std::to_string(round.input) + " kept in " +
                          counted(round.partitions, "partition") + ", objective " +
                          format("%.6g", round.objective)) +
                "</title></circle>\n";
        if (page.rounds.size() <= 32) {
            body += text_at(x(i), kHeight - 8, "middle", std::to_string(i + 1));
        }
    }
    body += "<polyline points=\"" + points + "\" class=\"curve\"/>\n" + dots;
    body += text_at(kLeft - 6, y(least) + 4, "end", format("%.5g", least));
    body += text_at(kLeft - 6, y(least + range) + 4, "end", format("%.5g", least + range));
    return picture(kHeight, body);
}

double share_of(const SelectionPage::Source& source) {
    return source.samples == 0
               ? 0
               : static_cast<double>(source.chosen) / static_cast<double>(source.samples);
}

std::string sources_picture(const SelectionPage& page, size_t& left_out) {
    std::vector<SelectionPage::Source> shown = page.sources;
    std::stable_sort(shown.begin(), shown.end(),
                     [](const auto& a, const auto& b) { return share_of(a) > share_of(b); });
    left_out = 0;
    if (shown.size() > kMostSources) {
        left_out = shown.size() - kMostSources;
        const auto middle = shown.begin() + kMostSources / 2;
        shown.erase(middle, middle + static_cast<std::ptrdiff_t>(left_out));
    }
    constexpr double kNames = 220, kRow = 17;
    const double width = kWidth - kNames - 120;
    const double height = kRow * static_cast<double>(shown.size());
    std::string body;
    for (size_t i = 0; i < shown.size(); ++i) {
        const SelectionPage::Source& one = shown[i];
        const double top = kRow * static_cast<double>(i);
        const std::string count = std::to_string(one.chosen) + " of " + std::to_string(one.samples);
        body += text_at(kNames - 8, top + 12, "end", one.name);
        body += box(kNames, top + 2, width, kRow - 4, "open", count);
        body += box(kNames, top + 2, width * share_of(one), kRow - 4, "chosen", count);
        body += text_at(kNames + width + 8, top + 12, "start",
                        format("%.0f %%  %s", 100 * share_of(one), count.c_str()));
    }
    const double mean =
        static_cast<double>(page.chosen) / static_cast<double>(std::max<int64_t>(page.samples, 1));
    body += line_at(kNames + width * mean, 0, kNames + width * mean, height, "mean");
    return picture(height + 4, body);
}

std::string text_box(const std::vector<SampleText>& texts, size_t i, bool chosen) {
    if (i >= texts.size()) return "<div></div>\n";
    const SampleText& one = texts[i];
    return "<div class=\"text" + std::string(chosen ? " of-chosen" : "") + "\"><div>sample " +
           std::to_string(one.sample) + ", " + html_text(one.source) + "</div><pre>" +
           html_text(one.text.empty() ? "(no text)" : one.text) + "</pre></div>\n";
}

std::string texts_of(const SampleTexts& texts) {
    std::string page = "<h2>Texts of samples</h2>\n";
    if (texts.tokenizer.empty()) {
        return page +
               "<p>No tokenizer is known for this data: give --tokenizer-model, or put it beside "
               "the data as PREFIX.tokenizer.json or PREFIX.model.</p>\n";
    }
    page +=
        "<p>How samples from all over the data begin; each row has one that was chosen and one "
        "that was not.</p>\n<div class=\"texts\">\n<h3>chosen</h3><h3>left out</h3>\n";
    for (size_t i = 0; i < std::max(texts.chosen.size(), texts.left_out.size()); ++i) {
        page += text_box(texts.chosen, i, true) + text_box(texts.left_out, i, false);
    }
    return page + "</div>\n";
}

std::string groups_of(const SelectionPage& page) {
    std::string text =
        "<h2>Groups of similar samples</h2>\n<p>" + html_text(page.about_groups) + "</p>\n";
    if (page.groups.empty()) return text;
    text += "<div class=\"texts\">\n<h3>chosen</h3><h3>left out</h3>\n";
    for (const SelectionPage::Group& group : page.groups) {
        const std::string left_out = std::to_string(group.samples - group.chosen);
        text += "<h3>" + std::to_string(group.chosen) + " of " + counted(group.samples, "sample") +
                "</h3><h3>" + left_out + "</h3>\n";
        for (size_t i = 0; i < std::max(group.some_chosen.size(), group.some_left_out.size());
             ++i) {
            text += text_box(group.some_chosen, i, true) + text_box(group.some_left_out, i, false);
        }
    }
    return text + "</div>\n";
}

}  // namespace

std::string SelectionPage::html() const {
    std::string page = "<h2>Decided by bounding</h2>\n";
    const bool decided =
        std::ranges::any_of(steps, [](const Step& step) { return step.decided > 0; });
    if (!decided) {
        page += "<p>Nothing: every sample was left to greedy.</p>\n";
    } else {
        page +=
            "<p><span class=\"chip\" style=\"background:var(--chosen)\"></span>selected"
            "<span class=\"chip\" style=\"background:var(--out)\"></span>discarded"
            "<span class=\"chip\" style=\"background:var(--open)\"></span>left to greedy; "
            "samples, after each step</p>\n" +
            bounding_picture(*this);
    }
    page += "<h2>Objective of what is kept, by round</h2>\n";
    if (rounds.empty()) {
        page += "<p>Bounding left nothing to choose from.</p>\n";
    } else {
        page += "<p>Every round drops samples, so the objective may fall.</p>\n" +
                rounds_picture(*this);
    }
    if (!sources.empty()) {
        size_t left_out = 0;
        const std::string bars = sources_picture(*this, left_out);
        page +=
            "<h2>Share kept of each source</h2>\n<p>The dashed line is the share of all "
            "samples." +
            (left_out > 0 ? " " + std::to_string(left_out) +
                                " sources between the most and the least kept are left out."
                          : std::string()) +
            "</p>\n" + bars;
    }
    if (!about_groups.empty()) page += groups_of(*this);
    if (texts) page += texts_of(*texts);
    return HtmlPage{.title = title, .facts = facts, .style = kStyle, .body = std::move(page)}
        .html();
}

}  // namespace vocabpipe::tool
