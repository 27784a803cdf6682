// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "src/support/tokenizer_files.hpp"
#include "src/train/tokenizer/tokenizer.hpp"

namespace vocabpipe {

/// Loads the tokenizer that a file holds, or a folder: in this order, its tokenizer.json, its
/// tokenizer.model, or its one .tiktoken file. The kind is told by the content: a tokenizer.json of
/// Hugging Face, ranks of tiktoken, or else a SentencePiece model. InputFileError if it holds none
/// or asks for what is not supported.
[[nodiscard]] std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path);

/// The file that open_tokenizer() takes of a folder; "": none is there.
[[nodiscard]] std::string tokenizer_file_in(const std::string& folder);

/// The tokenizer that lies beside PREFIX.bin, as `data prepare` puts it; null: none does.
[[nodiscard]] std::unique_ptr<Tokenizer> open_tokenizer_beside(const std::string& prefix);

/// The files of the tokenizer that open_tokenizer(path) loads: its own, and those beside it that
/// belong to it, with its prefix if it is PREFIX.tokenizer.json. By their names in a model's
/// folder.
[[nodiscard]] TokenizerFiles files_of_tokenizer(const std::string& path);

}  // namespace vocabpipe
