// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/embedded_file.hpp"

#include <span>
#include <string>
#include <string_view>

// Text that a user names: built in under that name, or a file.

namespace vocabpipe {

struct NamedText {
    std::string name;  ///< without folder and ".json"
    std::string text;
};
/// Throws UsageError if `name` is neither built in nor a file, naming the nearest built-in one, or
/// if it is both; InputFileError if it cannot be read.
[[nodiscard]] NamedText named_text(std::string_view flag, const std::string& name,
                                   std::span<const embedded::File> built_in);

/// "a, b, c"
[[nodiscard]] std::string names_of(std::span<const embedded::File> files);

}  // namespace vocabpipe
