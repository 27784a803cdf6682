// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/chat_line.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "src/train/text/json_line.hpp"

namespace vocabpipe {

namespace {

using nlohmann::json;

/// Keeps the ranges under "learn" of the outermost object, and builds no values of others.
class RangesHandler final : public nlohmann::json_sax<json> {
public:
    explicit RangesHandler(size_t text_bytes) : text_bytes_(text_bytes) {}

    bool null() override { return other("null"); }
    bool boolean(bool) override { return other("boolean"); }
    bool number_integer(number_integer_t) override { return other("number"); }
    bool number_float(number_float_t, const string_t&) override { return other("number"); }
    bool string(string_t&) override { return other("string"); }
    bool binary(binary_t&) override { return other("binary"); }
    bool number_unsigned(number_unsigned_t number) override {
        if (!list_ || depth_ != kInRange) return other("number");
        if (numbers_ == pair_.size()) fail_range();
        pair_[numbers_++] = number;
        return true;
    }
    bool start_array(size_t) override {
        if (list_ && depth_ > kInList) fail_range();
        if (learn_ && depth_ == kInObject) {
            list_ = true;
            learn_type_ = "array";
            ranges_.clear();
            behind_ = 0;
            count_ = 0;
        }
        ++depth_;
        numbers_ = 0;
        return true;
    }
    bool end_array() override {
        if (list_ && depth_ == kInRange) take_range();
        --depth_;
        return true;
    }
    bool start_object(size_t) override {
        if (depth_ > 0) other("object");
        if (depth_ == 0) object_ = true;
        ++depth_;
        return true;
    }
    bool end_object() override {
        --depth_;
        return true;
    }
    bool key(string_t& name) override {
        if (depth_ != kInObject) return true;
        learn_ = object_ && name == "learn";
        list_ = false;
        return true;
    }
    bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }

    [[nodiscard]] bool has_learn() const { return learn_type_ != nullptr; }
    [[nodiscard]] std::vector<LearntRange> take() {
        if (!has_learn()) {
            throw BadLine(
                "has no \"learn\", unlike other lines; render all chats with "
                "examples/chats/render_chats.py, or use --input-format jsonl to learn all text");
        }
        if (std::string_view(learn_type_) != "array") {
            throw BadLine("\"learn\" is no list of [begin, end] but " + std::string(learn_type_));
        }
        return std::move(ranges_);
    }

private:
    // How many containers are open around a value.
    static constexpr int64_t kInObject = 1, kInList = 2, kInRange = 3;

    bool other(const char* type) {
        if (learn_ && depth_ == kInObject) learn_type_ = type;
        if (list_ && depth_ > kInObject) fail_range();
        return true;
    }
    [[noreturn]] void fail_range() const {
        throw BadLine("\"learn\"[" + std::to_string(count_) +
                      "] is no [begin, end] of two bytes of the text");
    }
    void take_range() {
        if (numbers_ != pair_.size()) fail_range();
        const auto [begin, end] = pair_;
        if (begin < behind_ || end < begin || end > text_bytes_) {
            throw BadLine("\"learn\"[" + std::to_string(count_) + "] is [" + std::to_string(begin) +
                          ", " + std::to_string(end) +
                          "], but must be in order, without overlaps, and within the " +
                          std::to_string(text_bytes_) + " bytes of the text");
        }
        behind_ = end;
        ++count_;
        if (begin < end) {
            ranges_.push_back({static_cast<size_t>(begin), static_cast<size_t>(end)});
        }
    }

    size_t text_bytes_;
    int64_t depth_ = 0;
    bool object_ = false;               ///< the outermost value is an object
    bool learn_ = false;                ///< its last key was "learn"
    bool list_ = false;                 ///< and the value an array
    const char* learn_type_ = nullptr;  ///< of the value under "learn"; null: there is none
    std::vector<LearntRange> ranges_;
    uint64_t behind_ = 0;  ///< end of the last range
    int64_t count_ = 0;    ///< ranges so far, with empty ones
    std::array<uint64_t, 2> pair_{};
    size_t numbers_ = 0;  ///< of the pair
};

}  // namespace

ChatLine chat_of_json_line(std::string_view line, const std::string& key) {
    ChatLine chat{.text = text_of_json_line(line, key)};
    RangesHandler handler(chat.text.size());
    json::sax_parse(line, &handler);
    chat.learn = handler.take();
    return chat;
}

bool is_chat_line(std::string_view line) {
    RangesHandler handler(SIZE_MAX);
    try {
        return json::sax_parse(line, &handler) && handler.has_learn();
    } catch (const BadLine&) {
        return true;  // "learn" is there, and wrong
    }
}

}  // namespace vocabpipe
