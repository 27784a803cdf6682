// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/text_input.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>

#include "src/train/text/json_line.hpp"
#include "src/train/text/parquet_texts.hpp"
#include "src/train/text/text_file.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr std::string_view kWhiteSpace = " \t\r\v\f\n";

/// Thrown to stop reading.
struct Enough {};

}  // namespace

TextKind text_kind(const std::string& path) {
    if (is_parquet_file(path)) return TextKind::parquet;
    std::string head;
    size_t begin = std::string::npos;
    try {
        read_text_file(path, [&](std::string_view block) {
            // A chat says anywhere in its line what is learnt: read the first one that is not blank
            // whole, if it may be JSON and is not longer than lines may be.
            head.append(block);
            begin = without_byte_order_mark(head).find_first_not_of(kWhiteSpace);
            if (begin == std::string::npos) {
                head.clear();
                return;
            }
            const std::string_view text = without_byte_order_mark(head).substr(begin);
            if (text.front() != '{' || text.find('\n') != std::string_view::npos ||
                text.size() > LineSplitter::kMostBytes) {
                throw Enough();
            }
        });
    } catch (const Enough&) {
    }
    if (begin == std::string::npos) return TextKind::plain;
    const std::string_view text = without_byte_order_mark(head).substr(begin);
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (line.starts_with("[{")) {
        throw InputFileError(path +
                             ": is a JSON array; write one object per line (jq -c '.[]'), or use "
                             "--input-format text to take it as text");
    }
    if (!line.starts_with('{')) return TextKind::plain;
    if (is_chat_line(line)) return TextKind::chats;
    const bool too_long = end == std::string_view::npos && line.size() > LineSplitter::kMostBytes;
    return nlohmann::json::accept(line) || (too_long && line.starts_with("{\""))
               ? TextKind::json_lines
               : TextKind::plain;
}

std::string about_inputs(const std::vector<TextInput>& inputs) {
    return inputs.front().path + (inputs.size() > 1 ? " and the other inputs" : "");
}

std::string about_line(const TextInput& input, int64_t line, std::string_view reason) {
    return input.path + (input.parquet ? " row " : " line ") + std::to_string(line) + ": " +
           std::string(reason);
}

void read_text(const TextInput& input, const TextSink& sink) {
    if (input.json_key.empty()) {
        read_text_file(input.path, sink.text);
        sink.end();
        return;
    }
    const auto take_bad = [&](int64_t line, const std::string& reason) {
        if (!sink.bad_line) throw InputFileError(about_line(input, line, reason));
        sink.bad_line(line, reason);
    };
    if (input.parquet) {
        read_parquet_texts(input.path, input.json_key, [&](const TextRow& row) {
            if (row.bad != nullptr) return take_bad(row.number, row.bad);
            sink.text(row.text);
            sink.end();
        });
        return;
    }
    LineSplitter lines([&](const LineSplitter::Line& line) {
        if (line.too_long) return take_bad(line.number, LineSplitter::kTooLong);
        if (is_blank_line(line.text)) return;
        try {
            sink.text(text_of_json_line(line.text, input.json_key));
        } catch (const BadLine& bad) {
            return take_bad(line.number, bad.what());
        }
        sink.end();
    });
    read_text_file(input.path, [&](std::string_view block) { lines.feed(block); });
    lines.end_file();
}

}  // namespace vocabpipe
