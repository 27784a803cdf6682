// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace vocabpipe {

/// The bytes of a token that is written in GPT-2's alphabet, in which every byte is a printable
/// character: the printable ones of Latin-1 stand for themselves, U+0100 and up for the others.
/// None: some character is not of the alphabet.
[[nodiscard]] std::optional<std::string> bytes_of_alphabet(std::string_view token);

}  // namespace vocabpipe
