// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/text_input.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>

#include "src/train/text/json_line.hpp"
#include "src/train/text/text_file.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr std::string_view kWhiteSpace = " \t\r\v\f\n";

/// Thrown to stop reading.
struct Enough {};

}  // namespace

bool holds_json_lines(const std::string& path) {
    std::string head;
    try {
        read_text_file(path, [&](std::string_view block) {
            head.append(block);
            // Read the whole first line that is not blank, or enough to recognise it.
            const size_t begin = head.find_first_not_of(kWhiteSpace);
            if (begin != std::string::npos) throw Enough();
            head.clear();
        });
    } catch (const Enough&) {
    }
    const std::string_view text = without_byte_order_mark(head);
    const size_t begin = text.find_first_not_of(kWhiteSpace);
    if (begin == std::string_view::npos) return false;
    const size_t end = text.find('\n', begin);
    const std::string_view line = text.substr(begin, end - begin);
    if (line.starts_with("[{")) {
        throw InputFileError(path +
                             ": is a JSON array; write one object per line (jq -c '.[]'), or use "
                             "--input-format text to take it as text");
    }
    if (!line.starts_with('{')) return false;
    if (nlohmann::json::accept(line)) return true;
    // The line is longer than a block.
    return end == std::string_view::npos && line.starts_with("{\"");
}

std::string text_of_line(const TextInput& input, const LineSplitter::Line& line) {
    if (line.too_long) {
        throw BadLine("is longer than 64 MiB; cut its document into shorter ones");
    }
    return text_of_json_line(line.text, input.json_key);
}

std::string about_line(const TextInput& input, int64_t line, std::string_view reason) {
    return input.path + " line " + std::to_string(line) + ": " + std::string(reason);
}

void read_text(const TextInput& input, const TextSink& sink) {
    if (input.json_key.empty()) {
        read_text_file(input.path, sink.text);
        sink.end();
        return;
    }
    LineSplitter lines([&](const LineSplitter::Line& line) {
        if (is_blank_line(line.text) && !line.too_long) return;
        try {
            sink.text(text_of_line(input, line));
        } catch (const BadLine& bad) {
            if (!sink.bad_line) throw InputFileError(about_line(input, line.number, bad.what()));
            sink.bad_line(line.number, bad.what());
            return;
        }
        sink.end();
    });
    read_text_file(input.path, [&](std::string_view block) { lines.feed(block); });
    lines.end_file();
}

}  // namespace vocabpipe
