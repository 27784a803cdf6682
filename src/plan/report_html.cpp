// SPDX-License-Identifier: Apache-2.0
// The page: files of src/plan/page, the plan as JSON, and the timelines of its best rows, each as a
// run for the page of `vocabpipe timeline`.
#include "src/plan/embedded.hpp"
#include "src/plan/evaluate.hpp"
#include "src/schedule/html/timeline_parts.hpp"
#include "src/support/html_text.hpp"
#include "src/support/json_text.hpp"
#include "vocabpipe/plan.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace vocabpipe {

namespace {

/// Rows with a timeline, from the best.
constexpr size_t kTimelines = 10;
/// Passes of the longest timeline: some 2 MB of the page, and a second of one core.
constexpr int64_t kMostPasses = 25'000;

std::string_view part(std::string_view name) {
    const auto files = embedded::page();
    return std::ranges::find(files, name, &embedded::File::name)->text;
}

std::string json_element(const std::string& attributes, const std::string& json) {
    return R"(<script type="application/json" )" + attributes + ">" + script_text(json) +
           "</script>\n";
}

/// JSON without the line breaks and indents between its values; those in texts are escaped.
std::string packed(const std::string& json) {
    std::string text;
    for (size_t at = 0; at < json.size();) {
        const size_t end = std::min(json.find('\n', at), json.size());
        text.append(json, at, end - at);
        at = std::min(json.find_first_not_of(' ', std::min(end + 1, json.size())), json.size());
    }
    return text;
}

/// The parts of a timeline page, and a run for every row that has one.
std::string timeline_elements(const Plan& plan) {
    const html::TimelineParts parts = html::timeline_parts("A planned step", 0);
    std::string elements = json_element(
        R"(id="timeline")", json_text(nlohmann::ordered_json{{"before", parts.before},
                                                             {"after", parts.after},
                                                             {"rows", kTimelines},
                                                             {"most_passes", kMostPasses}}));
    const Evaluator evaluator(plan.options);
    for (size_t row = 0; row < std::min(kTimelines, plan.rows.size()); ++row) {
        const Candidate& candidate = plan.rows[row].candidate;
        if (count_passes(candidate) > kMostPasses) continue;
        elements += json_element(
            "class=\"row-timeline\" data-row=\"" + std::to_string(row) + "\"",
            json_text(nlohmann::ordered_json(html::run_element(evaluator.record(candidate)))));
    }
    return elements;
}

}  // namespace

std::string plan_html(const Plan& plan) {
    std::string page;
    std::string_view rest = part("page");
    const auto next = [&](std::string_view mark) {
        const size_t at = rest.find(mark);
        page += rest.substr(0, at);
        rest.remove_prefix(at + mark.size());
    };
    next("/* style */");
    page += part("style");
    next("<!-- data -->");
    page += json_element(R"(id="plan")", packed(plan_json(plan)));
    page += timeline_elements(plan);
    next("/* script */");
    for (const std::string_view script : {"data", "tables", "filter", "chart", "detail", "main"}) {
        page += part(script);
    }
    page += rest;
    return page;
}

}  // namespace vocabpipe
