// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/html/timeline_parts.hpp"

#include "src/schedule/html/run_data.hpp"
#include "src/support/html_text.hpp"
#include "src/support/json_text.hpp"

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

namespace vocabpipe::html {

/// The page and its parts: files of src/schedule/html, which CMake turns into literals.
extern const std::string_view page_html, style_css, data_js, draw_js, interact_js, find_js, form_js,
    pointer_js, generators_txt;

TimelineParts timeline_parts(const std::string& title, int ticks) {
    TimelineParts parts;
    std::string_view page = page_html;
    const auto next = [&page](std::string& part, std::string_view mark) {
        const size_t at = page.find(mark);
        part += page.substr(0, at);
        page.remove_prefix(at + mark.size());
    };
    next(parts.before, "<!-- title -->");
    parts.before += html_text(title);
    next(parts.before, "/* style */");
    parts.before += style_css;
    next(parts.before, "{data}");
    parts.before +=
        script_text(json_text(nlohmann::ordered_json{{"title", title}, {"ticks", ticks}}));
    next(parts.before, "{runs}");
    next(parts.after, "/* generators */");
    parts.after += generators_txt;
    next(parts.after, "/* script */");
    for (const std::string_view script :
         {data_js, draw_js, interact_js, find_js, form_js, pointer_js}) {
        parts.after += script;
    }
    parts.after += page;
    return parts;
}

std::string run_element(const RecordedRun& run) {
    return R"(<script type="application/json" class="run">)" + script_text(run_data(run)) +
           "</script>\n";
}

}  // namespace vocabpipe::html
