// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/bounding_rule.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace vocabpipe {

/// "0.3" as 3 / 10, exactly: from 0 to 1, with at most 9 decimals. None for any other text.
[[nodiscard]] std::optional<Fraction> fraction_from(std::string_view text);
/// The shortest text of a fraction.
[[nodiscard]] std::string decimal_text(Fraction fraction);

}  // namespace vocabpipe
