// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace vocabpipe {

/// The files of a tokenizer in a model's folder, in Hugging Face's words. tokenizer.model is a
/// model of SentencePiece, or tiktoken's ranks.
inline constexpr std::array<std::string_view, 5> kTokenizerFiles{
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
    "chat_template.jinja"};

/// Paths of some of them, by their names above.
using TokenizerFiles = std::map<std::string, std::string, std::less<>>;

/// Where `data prepare` puts such a file beside PREFIX.bin: PREFIX.model, or PREFIX.NAME.
[[nodiscard]] std::string tokenizer_file_beside(const std::string& prefix, std::string_view name);

/// Those that exist in a folder, and those that exist beside PREFIX.bin.
[[nodiscard]] TokenizerFiles tokenizer_files_in(const std::string& folder);
[[nodiscard]] TokenizerFiles tokenizer_files_beside(const std::string& prefix);

}  // namespace vocabpipe
