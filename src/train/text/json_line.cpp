// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/json_line.hpp"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

namespace vocabpipe {

namespace {

using nlohmann::json;

constexpr size_t kMostKeys = 10;  // named in a message

/// What fits on a line of the terminal, of a name or message that the file chose.
std::string shortened(std::string text) {
    constexpr size_t kMost = 160;
    if (text.size() <= kMost) return text;
    size_t end = kMost;
    while (end > kMost - 4 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    text.resize(end);
    return text + "...";
}

/// Keeps one string of the outermost object, and builds no values of the others.
class TextHandler final : public nlohmann::json_sax<json> {
public:
    explicit TextHandler(const std::string& key) : key_(key) {}

    bool null() override { return other("null"); }
    bool boolean(bool) override { return other("boolean"); }
    bool number_integer(number_integer_t) override { return other("number"); }
    bool number_unsigned(number_unsigned_t) override { return other("number"); }
    bool number_float(number_float_t, const string_t&) override { return other("number"); }
    bool binary(binary_t&) override { return other("binary"); }
    bool string(string_t& value) override {
        if (depth_ == 0) outermost_ = "string";
        if (depth_ != 1 || !in_object_) return true;
        note_key();
        if (wanted_) {
            found_ = "string";
            text_ = std::move(value);
        }
        return true;
    }
    bool start_object(size_t) override {
        open("object");
        in_object_ = in_object_ || depth_ == 1;
        return true;
    }
    bool end_object() override {
        --depth_;
        return true;
    }
    bool start_array(size_t) override {
        open("array");
        return true;
    }
    bool end_array() override {
        --depth_;
        return true;
    }
    bool key(string_t& name) override {
        if (depth_ == 1) {
            wanted_ = name == key_;
            name_ = name;
        }
        return true;
    }
    bool parse_error(size_t, const std::string&, const json::exception& error) override {
        // "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error ..."
        const std::string what = error.what();
        const size_t column = what.find("column ");
        throw BadLine(
            "is no JSON: " + shortened(column == std::string::npos ? what : what.substr(column)) +
            "; for text that only looks like JSON use --input-format text");
    }

    [[nodiscard]] std::string take_text() {
        if (!in_object_) throw BadLine("is no JSON object but " + std::string(outermost_));
        if (found_ == nullptr) {
            throw BadLine("has no \"" + key_ + "\"; " + keys() + "; choose one with --json-keys");
        }
        if (std::string_view(found_) != "string") {
            throw BadLine("\"" + key_ + "\" is no string but " + found_ + "; " + keys());
        }
        return std::move(text_);
    }

private:
    bool other(const char* type) {
        if (depth_ == 0) outermost_ = type;
        if (depth_ == 1 && in_object_ && wanted_) found_ = type;
        return true;
    }
    void open(const char* type) {
        other(type);
        ++depth_;
    }
    void note_key() {
        if (count_++ >= kMostKeys) return;
        keys_ += (keys_.empty() ? "\"" : ", \"") + shortened(name_) + "\"";
    }
    [[nodiscard]] std::string keys() const {
        if (keys_.empty()) return "no key has a string";
        return "strings are under " + keys_ + (count_ > kMostKeys ? ", ..." : "");
    }

    const std::string& key_;
    int64_t depth_ = 0;
    bool in_object_ = false;  ///< the outermost value is an object
    bool wanted_ = false;     ///< the last key of the outermost object is `key_`
    const char* outermost_ = "";
    const char* found_ = nullptr;  ///< the type of the value under `key_`
    std::string text_, name_, keys_;
    size_t count_ = 0;
};

}  // namespace

bool is_blank_line(std::string_view line) {
    return line.find_first_not_of(" \t\r\v\f\n") == std::string_view::npos;
}

std::string text_of_json_line(std::string_view line, const std::string& key) {
    TextHandler handler(key);
    json::sax_parse(line, &handler);
    return handler.take_text();
}

}  // namespace vocabpipe
