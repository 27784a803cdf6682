// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace vocabpipe {

/// The end of an error message about an unknown name: "; did you mean 1f1b?", or "" if no known
/// name is close (at most a third of its letters swapped, missing, added or changed, ignoring case)
/// or begins with the given text.
[[nodiscard]] std::string did_you_mean(std::string_view given,
                                       std::span<const std::string_view> known);

/// The part of an error message that lists them: "must be one of 1f1b, zb", and did_you_mean().
[[nodiscard]] std::string must_be_one_of(std::span<const std::string_view> known,
                                         std::string_view given);

}  // namespace vocabpipe
