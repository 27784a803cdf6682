// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/hash.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace vocabpipe {

/// "0.3" as 3 / 10: from 0 to 1, of at most 9 decimals, exactly. None if it is anything else.
[[nodiscard]] std::optional<Fraction> fraction_from(std::string_view text);
/// The shortest such text.
[[nodiscard]] std::string decimal_text(Fraction fraction);

}  // namespace vocabpipe
