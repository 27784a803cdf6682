// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/embedded.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

// JSON that a user names: built in under that name, or a file. Errors name file, key and remedy.

namespace vocabpipe {

class NamedFile {
public:
    /// Throws UsageError if `name` is neither built in nor a file, naming the nearest built-in one;
    /// InputFileError if it cannot be read or is no JSON object.
    NamedFile(std::string_view flag, const std::string& name,
              std::span<const embedded::File> built_in);

    /// The name without folder and ".json".
    [[nodiscard]] const std::string& stem() const { return stem_; }
    [[nodiscard]] bool has(const char* key) const;
    [[nodiscard]] const nlohmann::json& object(const char* key) const;
    [[nodiscard]] std::string text(const char* key) const;
    [[nodiscard]] bool flag(const char* key, bool otherwise) const;
    /// An integer of at least `least`; `otherwise` where the key is missing or null.
    [[nodiscard]] int64_t integer(const char* key, int64_t least,
                                  std::optional<int64_t> otherwise = std::nullopt) const;
    /// Throws InputFileError if the key is there and no number from `least` to `most`.
    void check_number(const char* key, double least, double most) const;
    /// Throws InputFileError "FILE: KEY: REASON".
    [[noreturn]] void refuse(const std::string& key, const std::string& reason) const;

private:
    [[nodiscard]] const nlohmann::json* find(const char* key) const;

    std::string where_, stem_;
    nlohmann::json json_;
};

/// "a, b, c"
[[nodiscard]] std::string names_of(std::span<const embedded::File> files);

}  // namespace vocabpipe
