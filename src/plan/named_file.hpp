// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/embedded.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

// Text that a user names: built in under that name, or a file.

namespace vocabpipe {

struct NamedText {
    std::string name;  ///< without folder and ".json"
    std::string text;
};
/// Throws UsageError if `name` is neither built in nor a file, naming the nearest built-in one;
/// InputFileError if it cannot be read.
[[nodiscard]] NamedText named_text(std::string_view flag, const std::string& name,
                                   std::span<const embedded::File> built_in);

/// A JSON object of named_text(). Errors name file, key and remedy.
class NamedFile {
public:
    /// Throws like named_text(); InputFileError if the text is no JSON object.
    NamedFile(std::string_view flag, const std::string& name,
              std::span<const embedded::File> built_in);

    [[nodiscard]] const nlohmann::json& object(const char* key) const;
    [[nodiscard]] std::string text(const char* key) const;
    /// Throws InputFileError "FILE: KEY: REASON".
    [[noreturn]] void refuse(const std::string& key, const std::string& reason) const;

private:
    [[nodiscard]] const nlohmann::json& at(const char* key) const;

    std::string where_;
    nlohmann::json json_;
};

/// "a, b, c"
[[nodiscard]] std::string names_of(std::span<const embedded::File> files);

}  // namespace vocabpipe
