// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vocabpipe {

/// Unicode's White_Space.
[[nodiscard]] bool is_white_space(int32_t code);

/// A letter, mark, digit, connector or joiner: what \w of Unicode's regular expressions takes.
[[nodiscard]] bool is_word_character(int32_t code);

}  // namespace vocabpipe
