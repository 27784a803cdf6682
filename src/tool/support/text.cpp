// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/text.hpp"

#include "src/support/joined.hpp"

#include <array>
#include <cstdio>
#include <ctime>
#include <span>
#include <sstream>

namespace vocabpipe::tool {

namespace {

/// Bytes of the UTF-8 character that starts `text`, 0 if it is damaged.
size_t character_bytes(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text.front());
    const size_t bytes = lead < 0x80                   ? 1
                         : lead >= 0xc2 && lead < 0xe0 ? 2
                         : lead >= 0xe0 && lead < 0xf0 ? 3
                         : lead >= 0xf0 && lead < 0xf5 ? 4
                                                       : 0;
    if (bytes == 0 || bytes > text.size()) {
        return 0;
    }
    for (const char c : text.substr(1, bytes - 1)) {
        if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) {
            return 0;
        }
    }
    return bytes;
}

constexpr size_t kMostOfAWord = 200;
constexpr size_t kMostOfALine = 1000;

/// First byte of the character that contains byte `at` of valid UTF-8.
size_t begin_of_character(std::string_view text, size_t at) {
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
    return at;
}

}  // namespace

std::string one_line(std::string_view text) {
    std::string line;
    while (!text.empty()) {
        const size_t bytes = character_bytes(text);
        const auto c = static_cast<unsigned char>(text.front());
        const bool control = bytes == 1 && (c < 0x20 || c == 0x7f);
        // U+0080 to U+009f: some terminals take them as commands.
        const bool old_control =
            bytes == 2 && c == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
        line += control || old_control ? " " : bytes == 0 ? "?" : text.substr(0, bytes);
        text.remove_prefix(bytes == 0 ? 1 : bytes);
    }
    return line;
}

std::string short_line(std::string_view text) {
    std::string line;
    std::istringstream words{one_line(text)};
    for (std::string word; std::getline(words, word, ' ');) {
        if (word.size() > kMostOfAWord) {
            // Punctuation after a name or value belongs to the sentence.
            const char last = word.back();
            word.resize(begin_of_character(word, kMostOfAWord));
            word += "...";
            if (last == ':' || last == ';' || last == ',') word += last;
        }
        line += (line.empty() ? "" : " ") + word;
    }
    if (line.size() <= kMostOfALine) return line;
    return line.substr(0, begin_of_character(line, kMostOfALine * 2 / 3)) + " ... " +
           line.substr(begin_of_character(line, line.size() - kMostOfALine / 3));
}

std::string quoted(std::string_view text, size_t max_bytes) {
    std::string result = "\"";
    while (!text.empty()) {
        if (result.size() > max_bytes) {
            return result + "\"...";
        }
        const size_t bytes = character_bytes(text);
        const char c = text.front();
        if (c == '\n') {
            result += "\\n";
        } else if (c == '"' || c == '\\') {
            result += {'\\', c};
        } else if (bytes == 0 ||
                   (bytes == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f))) {
            std::array<char, 8> hex{};
            std::snprintf(hex.data(), hex.size(), "\\x%02x",
                          static_cast<unsigned>(static_cast<unsigned char>(c)));
            result += hex.data();
        } else {
            result += text.substr(0, bytes);
        }
        text.remove_prefix(bytes == 0 ? 1 : bytes);
    }
    return result + '"';
}

std::string command_line(int argc, char** argv) {
    return one_line(joined(std::span(argv, static_cast<size_t>(argc)), " "));
}

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::array<char, 32> text;
    const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts);
    return {text.data(), length};
}

}  // namespace vocabpipe::tool
