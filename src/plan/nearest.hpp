// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// The known name that takes the fewest insertions, deletions and replacements of letters (capitals
/// count as small letters) to become `name`; empty if more than half of the letters differ.
[[nodiscard]] std::string nearest_name(std::string_view name,
                                       const std::vector<std::string_view>& known);

}  // namespace vocabpipe
