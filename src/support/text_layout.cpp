// SPDX-License-Identifier: Apache-2.0
#include "src/support/text_layout.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace vocabpipe {

std::string format(const char* pattern, ...) {
    va_list arguments;
    va_start(arguments, pattern);
    va_list again;
    va_copy(again, arguments);
    std::string text(
        static_cast<size_t>(std::max(0, std::vsnprintf(nullptr, 0, pattern, arguments))), '\0');
    std::vsnprintf(text.data(), text.size() + 1, pattern, again);
    va_end(again);
    va_end(arguments);
    return text;
}

std::string wrap_text(std::string_view text, size_t indent, size_t used, size_t width) {
    constexpr size_t kNarrowest = 12;  // prefers a long line to one word per line
    width = std::max(width, indent + kNarrowest);
    std::string result;
    size_t column = used;
    bool begins = used <= indent;  // a line, where breaking would give no more room
    while (!text.empty()) {
        if (text.front() == '\n') {
            result += '\n';
            column = 0;
            begins = true;
            text.remove_prefix(1);
            continue;
        }
        const size_t spaces = std::min(text.find_first_not_of(' '), text.size());
        const size_t end = std::min(text.find_first_of(" \n", spaces), text.size());
        const std::string_view word = text.substr(spaces, end - spaces);
        if (word.empty()) {  // spaces at the end of a line
            text.remove_prefix(end);
            continue;
        }
        if (begins || column + spaces + word.size() <= width) {
            result += text.substr(0, end);
            column += end;
        } else {
            result += "\n" + std::string(indent, ' ');
            result += word;
            column = indent + word.size();
        }
        begins = false;
        text.remove_prefix(end);
    }
    return result;
}

std::string counted(int64_t count, std::string_view noun, std::string_view plural) {
    const std::string text = std::to_string(count) + " ";
    if (count != 1 && !plural.empty()) return text + std::string(plural);
    return text + std::string(noun) + (count == 1 ? "" : "s");
}

void TextTable::row(std::vector<std::string> cells, std::vector<bool> left) {
    if (rows_.empty()) left_ = std::move(left);
    rows_.push_back(std::move(cells));
}

std::string TextTable::text() const {
    std::vector<size_t> width;
    for (const auto& row : rows_) {
        if (row.size() > width.size()) width.resize(row.size(), 0);
        for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows_) {
        std::string line;
        for (size_t i = 0; i < row.size(); ++i) {
            const std::string space(width[i] - row[i].size(), ' ');
            const bool left = i < left_.size() && left_[i];
            line += i == 0 ? "" : "  ";
            if (left && i + 1 == width.size()) {
                line += wrap_text(row[i], line.size(), line.size());
            } else {
                line += left ? row[i] + space : space + row[i];
            }
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

}  // namespace vocabpipe
