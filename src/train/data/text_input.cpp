// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/text_input.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>

#include "src/train/data/text_file.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

using nlohmann::json;

constexpr std::string_view kWhiteSpace = " \t\r\v\f\n";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool is_white(std::string_view line) {
    return line.find_first_not_of(kWhiteSpace) == std::string_view::npos;
}

std::string keys_of(const json& object) {
    std::string keys;
    for (const auto& [key, value] : object.items()) {
        if (!value.is_string()) continue;
        keys += (keys.empty() ? "\"" : ", \"") + key + "\"";
    }
    return keys.empty() ? "no key has a string" : "strings are under " + keys;
}

/// The documents of a file's lines.
class JsonLines {
public:
    JsonLines(const TextInput& input, const TextSink& sink) : input_(input), sink_(sink) {}

    void feed(std::string_view block) {
        for (size_t end = block.find('\n'); end != std::string_view::npos; end = block.find('\n')) {
            line_.append(block.substr(0, end));
            take_line();
            block.remove_prefix(end + 1);
        }
        line_.append(block);
    }
    void end_file() { take_line(); }

private:
    void take_line() {
        ++number_;
        std::string_view line = line_;
        if (number_ == 1 && line.starts_with(kByteOrderMark)) {
            line.remove_prefix(kByteOrderMark.size());
        }
        if (!is_white(line)) {
            sink_.text(document(line));
            sink_.end();
        }
        line_.clear();
    }

    [[nodiscard]] std::string document(std::string_view line) const {
        json object;
        try {
            object = json::parse(line);
        } catch (const json::parse_error& error) {
            // "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error ..."
            const std::string what = error.what();
            const size_t column = what.find("column ");
            fail("is no JSON: " + (column == std::string::npos ? what : what.substr(column)) +
                 "; for text that only looks like JSON use --input-format text");
        }
        if (!object.is_object()) fail("is no JSON object but " + std::string(object.type_name()));
        const auto found = object.find(input_.json_key);
        if (found == object.end()) {
            fail("has no \"" + input_.json_key + "\"; " + keys_of(object) +
                 "; choose one with --json-key");
        }
        if (!found->is_string()) {
            fail("\"" + input_.json_key + "\" is no string but " + found->type_name() + "; " +
                 keys_of(object));
        }
        return found->get<std::string>();
    }

    [[noreturn]] void fail(const std::string& what) const {
        throw InputFileError(input_.path + " line " + std::to_string(number_) + ": " + what);
    }

    const TextInput& input_;
    const TextSink& sink_;
    std::string line_;
    int64_t number_ = 0;
};

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
        });
    } catch (const Enough&) {
    }
    if (head.starts_with(kByteOrderMark)) head.erase(0, kByteOrderMark.size());
    const size_t begin = head.find_first_not_of(kWhiteSpace);
    if (begin == std::string::npos) return false;
    const size_t end = head.find('\n', begin);
    const std::string_view line = std::string_view(head).substr(begin, end - begin);
    if (line.starts_with("[{")) {
        throw InputFileError(path +
                             ": is a JSON array; write one object per line (jq -c '.[]'), or use "
                             "--input-format text to take it as text");
    }
    if (!line.starts_with('{')) return false;
    if (json::accept(line)) return true;
    // The line is longer than a block.
    return end == std::string::npos && line.starts_with("{\"");
}

void read_text(const TextInput& input, const TextSink& sink) {
    JsonLines lines(input, sink);
    const bool plain = input.json_key.empty();
    read_text_file(input.path, [&](std::string_view block) {
        if (sink.progress) sink.progress(static_cast<int64_t>(block.size()));
        if (plain) {
            sink.text(block);
        } else {
            lines.feed(block);
        }
    });
    if (plain) {
        sink.end();
    } else {
        lines.end_file();
    }
}

}  // namespace vocabpipe
