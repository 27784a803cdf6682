// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace vocabpipe {

/// The bytes that base64 (RFC 4648, with padding) stands for; none: it is no base64.
[[nodiscard]] std::optional<std::string> bytes_of_base64(std::string_view text);

}  // namespace vocabpipe
