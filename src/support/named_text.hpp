// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/embedded_file.hpp"

#include <span>
#include <string>
#include <string_view>

// Text that a user selects by name: a built-in one, or a file.

namespace vocabpipe {

struct NamedText {
    std::string name;  ///< without folder and ".json"
    std::string text;
};
/// UsageError if `name` is neither built in nor a file, with the nearest built-in name, or if it is
/// both; InputFileError if the file cannot be read.
[[nodiscard]] NamedText named_text(std::string_view flag, const std::string& name,
                                   std::span<const embedded::File> built_in);

/// "a, b, c"
[[nodiscard]] std::string names_of(std::span<const embedded::File> files);

}  // namespace vocabpipe
