// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/tokenizer/bpe/bpe_tokenizer.hpp"

#include <string>
#include <string_view>

namespace vocabpipe {

/// What a tokenizer.json of Hugging Face says, `text` being its content, and the files beside it
/// (find_document_tokens()). InputFileError for anything that it asks for and this library does not
/// do: other models than byte-pair encoding, other steps, other settings, each by its name.
[[nodiscard]] BpeDescription read_tokenizer_json(std::string_view text, const std::string& path);

}  // namespace vocabpipe
