// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/strict_json.hpp"
#include "src/train/tokenizer/bpe/text_steps.hpp"
#include "src/train/tokenizer/bpe/token_text.hpp"

#include <optional>
#include <string>
#include <vector>

// The parts of a tokenizer.json that say what happens to texts. InputFileErrors name what is not
// supported.
namespace vocabpipe {

/// The true-or-false value of a key; `absent` without it.
[[nodiscard]] bool flag_or(const StrictJson& json, const char* key, bool absent);

/// Appends the steps of "normalizer".
void read_normalizer(const StrictJson& json, std::vector<TextStep>& steps);
/// Appends the steps of "pre_tokenizer". True: words are bytes (ByteLevel); false: characters.
[[nodiscard]] bool read_pre_tokenizer(const StrictJson& json, std::vector<TextStep>& steps);
[[nodiscard]] TokenText read_decoder(const StrictJson& json);
/// The token that "post_processor" puts before every text; none: it puts none there.
[[nodiscard]] std::optional<std::string> read_begin(const StrictJson& json);

}  // namespace vocabpipe
