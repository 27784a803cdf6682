// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/tokenizer/bpe/text_part.hpp"

#include <cstdint>

namespace vocabpipe {

/// Unicode's normalization forms.
enum class UnicodeForm : uint8_t { nfc, nfd, nfkc, nfkd };

/// The text in a normalization form, of the Unicode version that utf8proc has; `from` itself if it
/// is in that form already. A character and the marks that follow it are normalized together, and
/// all of what comes out begins where they begin. Linear in the length, whatever the text.
[[nodiscard]] TextPart in_unicode_form(UnicodeForm form, const TextPart& from, ChangedText& memory);

}  // namespace vocabpipe
