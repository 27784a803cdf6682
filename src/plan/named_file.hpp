// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/embedded_file.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace vocabpipe {

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

}  // namespace vocabpipe
