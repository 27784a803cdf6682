// SPDX-License-Identifier: Apache-2.0
#include "src/tool/data/learnt_text.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "src/support/html_text.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/support/growing_text.hpp"
#include "src/tool/support/html_page.hpp"
#include "src/tool/support/text.hpp"

namespace vocabpipe::tool {

namespace {

constexpr const char* kEnd = "[end]";  // of a document, if the tokenizer has no name for it
constexpr int64_t kBlock = 1 << 20;    // tokens whose weights are read at once

constexpr const char* kLearntStyle = R"(
u { text-decoration: underline 2px var(--chosen); text-underline-offset: 3px; }
.special { color: var(--soft); }
.text { margin: 10px 0; }
)";

/// one_line() of every line.
std::string clean_lines(std::string_view text) {
    std::string lines;
    for (;;) {
        const size_t end = std::min(text.find('\n'), text.size());
        lines += one_line(text.substr(0, end));
        if (end == text.size()) return lines;
        lines += '\n';
        text.remove_prefix(end + 1);
    }
}

/// How many of the tokens [first, first + count) are learnt.
int64_t count_learnt(const TokenSource& source, int64_t first, int64_t count) {
    int64_t learnt = 0;
    std::vector<float> weights;
    for (int64_t done = 0; done < count; done += kBlock) {
        weights.resize(static_cast<size_t>(std::min(kBlock, count - done)));
        source.read_loss_weights(first + done, weights);
        learnt += std::count_if(weights.begin(), weights.end(), [](float w) { return w > 0; });
    }
    return learnt;
}

}  // namespace

LearntText learnt_text(const TokenSource& source, const Tokenizer& tokenizer, int64_t document,
                       int64_t first, int64_t count, int64_t most) {
    LearntText result{.document = document,
                      .tokens = count,
                      .learnt = count_learnt(source, first, count),
                      .cut = count > most};
    std::vector<int32_t> tokens(static_cast<size_t>(std::min(count, most)));
    std::vector<float> weights(tokens.size());
    source.read(first, tokens);
    source.read_loss_weights(first, weights);

    GrowingText text([&](std::span<const int32_t> ids) { return tokenizer.decode(ids); });
    const auto add = [&](std::string_view more, bool learnt, bool special) {
        if (more.empty()) return;
        if (result.parts.empty() || result.parts.back().learnt != learnt || special ||
            result.parts.back().special) {
            result.parts.push_back({.learnt = learnt, .special = special});
        }
        result.parts.back().text += more;
    };
    const auto name_of = [&](int32_t id) {
        const std::string name = tokenizer.special_name(id);
        return name.empty() && id == tokenizer.end_of_document() ? kEnd : name;
    };
    for (size_t i = 0; i < tokens.size(); ++i) {
        const auto so_far = std::span<const int32_t>(tokens).first(i + 1);
        const bool learnt = weights[i] > 0;
        if (const std::string name = name_of(tokens[i]); !name.empty()) {
            add(name, learnt, true);
            continue;
        }
        // What is left of a character does not wait for one behind a special token.
        const bool last = i + 1 == tokens.size() || !name_of(tokens[i + 1]).empty();
        add(last ? text.last(so_far) : text.next(so_far), learnt, false);
    }
    for (LearntText::Part& part : result.parts) part.text = clean_lines(part.text);
    return result;
}

std::string marked_lines(const LearntText& text, bool underline) {
    constexpr const char* kIndent = "  ";
    const std::string begin = underline ? "\033[4m" : "{+";
    const std::string end = underline ? "\033[24m" : "+}";
    std::string lines = kIndent;
    for (const LearntText::Part& part : text.parts) {
        if (part.learnt) lines += begin;
        for (const char c : part.text) {
            if (c != '\n') {
                lines += c;
            } else if (part.learnt && underline) {
                lines += end + "\n" + kIndent + begin;  // the indentation is not underlined
            } else {
                lines += std::string("\n") + kIndent;
            }
        }
        if (part.learnt) lines += end;
    }
    return lines + (text.cut ? " ...\n" : "\n");
}

std::string learnt_page(const std::string& data, const std::string& tokenizer,
                        const std::vector<LearntText>& texts) {
    std::string body = "<p>Learnt tokens are <u>underlined</u>: their loss has a weight.</p>\n";
    for (const LearntText& text : texts) {
        body += "<div class=\"text\"><div>document " + std::to_string(text.document) + ": " +
                std::to_string(text.learnt) + " of " + counted(text.tokens, "token") +
                " learnt</div><pre>";
        for (const LearntText::Part& part : text.parts) {
            std::string shown = html_text(part.text);
            if (part.special) shown = "<span class=\"special\">" + shown + "</span>";
            body += part.learnt ? "<u>" + shown + "</u>" : shown;
        }
        body += (text.cut ? " ..." : "") + std::string("</pre></div>\n");
    }
    return HtmlPage{
        .title = "What is learnt of " + data,
        .facts = {{"tokenizer", tokenizer}, {"shown", counted(texts.size(), "document")}},
        .style = kLearntStyle,
        .body = std::move(body)}
        .html();
}

}  // namespace vocabpipe::tool
