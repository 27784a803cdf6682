// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/tokenizer/bpe/bpe_tokenizer.hpp"

#include <string>
#include <string_view>

namespace vocabpipe {

/// Whether a text begins as a file of tiktoken does: a token in base64, a space, and its rank.
[[nodiscard]] bool begins_as_tiktoken(std::string_view text);

/// What a .tiktoken file says: tokens and their ranks. Words and special tokens are not in it. They
/// are those of the published tokenizer that has as many ranks: GPT-2, p50k_base, cl100k_base,
/// o200k_base, Llama 3 or Qwen. InputFileError for any other number, and damaged files.
[[nodiscard]] BpeDescription read_tiktoken_file(std::string_view text, const std::string& path);

}  // namespace vocabpipe
