// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace vocabpipe {

/// The path of the file `name` that belongs to a tokenizer's file: in its folder, and with its
/// prefix if that is PREFIX.tokenizer.json.
[[nodiscard]] std::string beside_tokenizer(const std::string& path, std::string_view name);

/// Texts of the tokens around documents.
struct DocumentTokens {
    std::optional<std::string> begin;  ///< none: documents begin without a token
    std::string end;
};

/// What the files beside a tokenizer.json say of these tokens. The end is the eos_token of
/// tokenizer_config.json or else of special_tokens_map.json, else the well-known one that
/// `has_token` has. The beginning is the bos_token, if tokenizer_config.json sets add_bos_token.
/// `path`: of the tokenizer.json, or PREFIX.tokenizer.json, beside which the others have the same
/// prefix. InputFileError if no end is known, or the one that a file names is none of `has_token`.
[[nodiscard]] DocumentTokens find_document_tokens(
    const std::string& path, const std::function<bool(std::string_view)>& has_token);

}  // namespace vocabpipe
