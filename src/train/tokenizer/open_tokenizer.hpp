// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "src/train/tokenizer/tokenizer.hpp"

namespace vocabpipe {

/// Loads the tokenizer that a file holds: a SentencePiece model. InputFileError if it holds none.
[[nodiscard]] std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path);

}  // namespace vocabpipe
