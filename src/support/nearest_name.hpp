// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace vocabpipe {

/// The end of an error message about an unknown name: "; did you mean 1f1b?", or "" where nothing
/// known is close (swapped, missing, added or changed letters, case not counted: at most a third of
/// them), or begins with what was given.
[[nodiscard]] std::string did_you_mean(std::string_view given,
                                       std::span<const std::string_view> known);

}  // namespace vocabpipe
