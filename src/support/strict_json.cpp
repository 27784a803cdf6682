// SPDX-License-Identifier: Apache-2.0
#include "src/support/strict_json.hpp"

#include "src/support/joined.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_set>
#include <utility>

namespace vocabpipe {

namespace {

/// Deeper than any file of this program; keeps a file of brackets from filling the memory.
constexpr int kMostDepth = 32;

/// nlohmann's "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without its
/// own label.
std::string without_label(const std::string& message) {
    const size_t label = message.find("] ");
    return label == std::string::npos ? message : message.substr(label + 2);
}

/// A key as part of a one-line message.
std::string one_line(const std::string& key) {
    constexpr size_t kLongest = 120;
    const bool plain = std::none_of(key.begin(), key.end(), [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
    return (plain ? key : nlohmann::json(key).dump(-1, ' ', true)).substr(0, kLongest);
}

/// Finds duplicate keys and excessive depth before the values are kept. A callback of json::parse()
/// could do that, but then each end of an object searches all its siblings.
class ShapeCheck final : public nlohmann::json_sax<nlohmann::json> {
public:
    /// Empty: none. Invalid JSON is left to the parser to report.
    [[nodiscard]] const std::string& fault() const { return fault_; }

    bool start_object(size_t /*elements*/) override {
        keys_.emplace_back();
        return deeper();
    }
    bool key(string_t& key) override {
        if (keys_.back().insert(key).second) return true;
        fault_ = nlohmann::json(key).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
                 " appears twice in one object; keep one";
        return false;
    }
    bool end_object() override {
        keys_.pop_back();
        --depth_;
        return true;
    }
    bool start_array(size_t /*elements*/) override { return deeper(); }
    bool end_array() override {
        --depth_;
        return true;
    }
    bool parse_error(size_t /*position*/, const std::string& /*token*/,
                     const nlohmann::detail::exception& /*error*/) override {
        return false;
    }
    bool null() override { return true; }
    bool boolean(bool /*value*/) override { return true; }
    bool number_integer(number_integer_t /*value*/) override { return true; }
    bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
    bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
    bool string(string_t& /*value*/) override { return true; }
    bool binary(binary_t& /*value*/) override { return true; }

private:
    bool deeper() {
        if (++depth_ <= kMostDepth) return true;
        fault_ = "nested deeper than " + std::to_string(kMostDepth) + " levels";
        return false;
    }

    std::vector<std::unordered_set<std::string>> keys_;  // of the open objects
    int depth_ = 0;
    std::string fault_;
};

}  // namespace

StrictJson::StrictJson(std::shared_ptr<Document> document, const nlohmann::json* value,
                       std::string path)
    : document_(std::move(document)), value_(value), path_(std::move(path)) {}

StrictJson StrictJson::parse(std::string_view text, std::string name) {
    using nlohmann::json;
    auto document = std::make_shared<Document>();
    document->file = std::move(name);
    const auto refuse = [&](const std::string& what) {
        throw InputFileError(document->file + ": " + what);
    };
    try {
        ShapeCheck check;
        (void)json::sax_parse(text, &check);
        if (!check.fault().empty()) refuse(check.fault());
        document->root = json::parse(text);
    } catch (const json::exception& error) {
        refuse("is not valid JSON: " + without_label(error.what()));
    }
    const json* const value = &document->root;
    return {std::move(document), value, ""};
}

void StrictJson::fail(const std::string& what) const {
    throw InputFileError(document_->file + ": " + (path_.empty() ? "" : path_ + ": ") + what);
}

void StrictJson::only(std::initializer_list<std::string_view> keys) const {
    if (!value_->is_object()) fail("must be an object {...}");
    for (const auto& [key, ignored] : value_->items()) {
        if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
        fail("unknown key \"" + one_line(key).substr(0, 60) + "\"; use one of " + joined(keys));
    }
}

void StrictJson::measured_version(std::string_view key, int64_t version, const std::string& kind,
                                  const std::string& remedy) const {
    if (!has(key)) {
        fail("is not " + kind + ": \"" + std::string(key) + "\" is missing; " + remedy);
    }
    const StrictJson given = at(key);
    const int64_t v = given.integer(0, INT64_MAX);
    if (v == version) return;
    given.fail("version " + std::to_string(v) + " is not supported; this program reads version " +
               std::to_string(version) + "; measure again with this program");
}

bool StrictJson::has(std::string_view key) const {
    if (value_ == &document_->root) document_->read_keys.emplace(key);
    return value_->is_object() && value_->contains(key);
}

StrictJson StrictJson::at(std::string_view key) const {
    if (!value_->is_object()) fail("must be an object {...}");
    if (value_ == &document_->root) document_->read_keys.emplace(key);
    const auto found = value_->find(key);
    if (found == value_->end()) fail("\"" + std::string(key) + "\" is missing; add it");
    return {document_, &*found, (path_.empty() ? "" : path_ + ".") + std::string(key)};
}

std::vector<std::string> StrictJson::unread_keys() const {
    std::vector<std::string> keys;
    if (!document_->root.is_object()) return keys;
    for (const auto& [key, ignored] : document_->root.items()) {
        if (!document_->read_keys.contains(key)) keys.push_back(key);
    }
    return keys;
}

std::vector<std::pair<std::string, StrictJson>> StrictJson::members() const {
    if (!value_->is_object()) fail("must be an object {...}");
    std::vector<std::pair<std::string, StrictJson>> result;
    for (const auto& [key, value] : value_->items()) {
        result.emplace_back(
            key, StrictJson{document_, &value, (path_.empty() ? "" : path_ + ".") + one_line(key)});
    }
    return result;
}

std::vector<StrictJson> StrictJson::items(size_t most) const {
    if (!value_->is_array()) fail("must be a list [...]");
    if (value_->size() > most) {
        fail("has " + std::to_string(value_->size()) + " entries; at most " + std::to_string(most) +
             " are allowed");
    }
    std::vector<StrictJson> result;
    result.reserve(value_->size());
    for (size_t i = 0; i < value_->size(); ++i) {
        result.push_back(
            StrictJson{document_, &(*value_)[i], path_ + "[" + std::to_string(i) + "]"});
    }
    return result;
}

int64_t StrictJson::integer(int64_t least, int64_t most) const {
    const std::string range =
        "must be an integer from " + std::to_string(least) + " to " + std::to_string(most);
    if (!value_->is_number_integer()) fail(range);
    const bool too_large =
        value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    if (too_large || value_->get<int64_t>() < least || value_->get<int64_t>() > most) {
        fail(value_->dump() + ": " + range);
    }
    return value_->get<int64_t>();
}

double StrictJson::number(double least, double most) const {
    const auto text = [](double limit) { return nlohmann::json(limit).dump(); };
    const std::string range = most == kAnyNumber
                                  ? "must be a finite number of at least " + text(least)
                                  : "must be a number from " + text(least) + " to " + text(most);
    if (!value_->is_number()) fail(range);
    const double number = value_->get<double>();
    if (!(number >= least && number <= most) || !std::isfinite(number))
        fail(value_->dump() + ": " + range);
    return number;
}

bool StrictJson::boolean() const {
    if (!value_->is_boolean()) fail("must be true or false");
    return value_->get<bool>();
}

std::string StrictJson::text() const {
    if (!value_->is_string()) fail("must be a string in quotes");
    return value_->get<std::string>();
}

bool StrictJson::is_off() const {
    const bool empty = (value_->is_object() || value_->is_array()) && value_->empty();
    return value_->is_null() || *value_ == false || *value_ == "none" || empty;
}

}  // namespace vocabpipe
