// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/html_timeline.hpp"

#include "src/schedule/html/run_data.hpp"
#include "src/schedule/same_unit.hpp"
#include "src/support/html_text.hpp"
#include "src/support/json_text.hpp"
#include "src/support/output_file.hpp"

#include <nlohmann/json.hpp>
#include <string_view>

namespace vocabpipe {

/// The page and its parts: files of src/schedule/html, which CMake turns into literals.
namespace html {
extern const std::string_view page_html, style_css, data_js, draw_js, interact_js, find_js, form_js,
    pointer_js, generators_txt;
}  // namespace html

namespace {

/// Escapes "<": even in strings, "</script" would end a script element and "<!--" confuse it.
std::string inert(std::string text) {
    for (size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at)) {
        text.replace(at, 1, "\\u003c");
    }
    return text;
}

}  // namespace

void write_html_timeline(const std::string& path, std::span<const RecordedRun> runs,
                         const std::string& title) {
    const int ticks = runs.empty() ? 0 : runs.front().ticks_per_unit;
    require_same_unit(runs);
    OutputFile file(path);
    std::string_view page = html::page_html;
    const auto next = [&](std::string_view mark) {
        const size_t at = page.find(mark);
        file.write(page.substr(0, at));
        page.remove_prefix(at + mark.size());
    };
    next("<!-- title -->");
    file.write(html_text(title));
    next("/* style */");
    file.write(html::style_css);
    next("{data}");
    file.write(inert(json_text(nlohmann::ordered_json{{"title", title}, {"ticks", ticks}})));
    next("{runs}");
    for (const RecordedRun& run : runs) {
        file.write(R"(<script type="application/json" class="run">)");
        file.write(inert(html::run_data(run)));
        file.write(std::string_view("</script>\n"));
    }
    next("/* generators */");
    file.write(html::generators_txt);
    next("/* script */");
    for (const std::string_view part : {html::data_js, html::draw_js, html::interact_js,
                                        html::find_js, html::form_js, html::pointer_js}) {
        file.write(part);
    }
    file.write(page);
    file.publish();
}

}  // namespace vocabpipe
