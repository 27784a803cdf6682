// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe {

/// A value of a JSON document that knows its place in it. Reading is strict: a wrong type, a value
/// out of range, and a missing, unknown or duplicate key are InputFileErrors "FILE: KEY.PATH: what
/// is wrong; remedy".
class StrictJson {
public:
    /// The whole document. `name` stands for the file in messages.
    [[nodiscard]] static StrictJson parse(std::string_view text, std::string name);

    /// Refuses other keys than these. The value must be an object.
    void only(std::initializer_list<std::string_view> keys) const;
    [[nodiscard]] bool has(std::string_view key) const;
    /// Checks the version of a measured file, stored under `key`. A document without the key is not
    /// a `kind`; `remedy` says how to make one.
    void measured_version(std::string_view key, int64_t version, const std::string& kind,
                          const std::string& remedy) const;
    /// The value of a required key.
    [[nodiscard]] StrictJson at(std::string_view key) const;
    /// Keys of the document that were never asked for by has() or at(), on any copy of its value.
    [[nodiscard]] std::vector<std::string> unread_keys() const;
    /// Keys and values of an object.
    [[nodiscard]] std::vector<std::pair<std::string, StrictJson>> members() const;
    [[nodiscard]] bool is_null() const { return value_->is_null(); }
    [[nodiscard]] bool is_array() const { return value_->is_array(); }
    [[nodiscard]] bool is_text() const { return value_->is_string(); }
    /// The values of an array of at most `most`.
    [[nodiscard]] std::vector<StrictJson> items(size_t most) const;

    [[nodiscard]] int64_t integer(int64_t least, int64_t most) const;
    static constexpr double kAnyNumber = std::numeric_limits<double>::max();
    /// Finite, from `least` to `most`.
    [[nodiscard]] double number(double least, double most = kAnyNumber) const;
    [[nodiscard]] bool boolean() const;
    [[nodiscard]] std::string text() const;
    /// Whether the value is null, false, "none", or an object or array without members: what files
    /// write for an option that is off.
    [[nodiscard]] bool is_off() const;

    /// Throws the InputFileError for this place.
    [[noreturn]] void fail(const std::string& what) const;

private:
    struct Document {
        std::string file;
        nlohmann::json root;
        std::set<std::string, std::less<>> read_keys;  ///< in the root
    };

    StrictJson(std::shared_ptr<Document> document, const nlohmann::json* value, std::string path);

    std::shared_ptr<Document> document_;
    const nlohmann::json* value_;  ///< within the document
    std::string path_;             ///< "costs.stage_ns[3].F"; empty: the document
};

}  // namespace vocabpipe
