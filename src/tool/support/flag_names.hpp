// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vocabpipe::tool {

/// Whose flags a message names.
enum class Caller { vocabpipe, train_gpt };

/// Replaces the options of the library that a message names, such as "RuleOptions::group_size", by
/// the caller's flags, such as "--group-size".
[[nodiscard]] std::string with_flags(std::string_view message, Caller caller);

}  // namespace vocabpipe::tool
