// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/html_page.hpp"

#include "src/support/html_text.hpp"

namespace vocabpipe::tool {

namespace {

constexpr const char* kCommonStyle = R"(
:root { --text: #1c2330; --soft: #647084; --line: #d9dde3; --chosen: #4f8f3a; --out: #aab4c3;
  --open: #eef1f5; --accent: #2f6bd8; color-scheme: light; }
@media (prefers-color-scheme: dark) { :root { --text: #e6eaf1; --soft: #95a1b5; --line: #323a47;
  --chosen: #7ab865; --out: #5d6a7e; --open: #1c212a; --accent: #79a8ff; color-scheme: dark; } }
* { box-sizing: border-box; }
body { font: 14px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; color: var(--text);
  max-width: 880px; margin: 24px auto; padding: 0 14px; }
h1 { font-size: 20px; } h2 { font-size: 15px; margin: 28px 0 2px; }
p { color: var(--soft); margin: 0 0 8px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td { padding: 1px 18px 1px 0; vertical-align: top; overflow-wrap: anywhere; } td:first-child { color: var(--soft);
  overflow-wrap: normal; }
.text { border: 1px solid var(--line); border-left: 3px solid var(--out); border-radius: 4px;
  padding: 6px 9px; min-width: 0; }
.text div { font-size: 12px; color: var(--soft); }
.text pre { font: inherit; font-size: 13px; white-space: pre-wrap; overflow-wrap: anywhere; margin: 2px 0 0; }
)";

}  // namespace

std::string HtmlPage::html() const {
    std::string page =
        "<!DOCTYPE html>\n<!-- SPDX-License-Identifier: Apache-2.0 -->\n<html "
        "lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width\">\n<title>" +
        html_text(title) + "</title>\n<style>" + kCommonStyle + std::string(style) +
        "</style></head>\n<body>\n<h1>" + html_text(title) + "</h1>\n<table>\n";
    for (const auto& [name, value] : facts) {
        page += "<tr><td>" + html_text(name) + "</td><td>" + html_text(value) + "</td></tr>\n";
    }
    return page + "</table>\n" + body + "</body></html>\n";
}

}  // namespace vocabpipe::tool
