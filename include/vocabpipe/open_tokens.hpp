// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// How to read `--data-path`.
enum class DataFormat : uint8_t {
    automatic,  // by content: Megatron or llm.c
    raw_u8,     // any file: its bytes are the tokens
    raw_u16,    // headerless, as nanoGPT writes it
    raw_u32,
};

/// Parses "auto", "raw-u8", "raw-u16" or "raw-u32" (the flag --data-format); throws UsageError
/// otherwise.
[[nodiscard]] DataFormat parse_data_format(std::string_view text);

/// Opens the files that `--data-path` names, without reading the tokens: the prefix of a Megatron
/// .bin/.idx pair (or one of the two files), or one or several llm.c or raw files as a
/// comma-separated list of names and glob patterns; the matches of a pattern come in sorted order.
/// InputFileError names the file, what was found instead, and the remedy. Call check_tokens()
/// before training.
[[nodiscard]] std::unique_ptr<TokenSource> open_tokens(const std::string& path,
                                                       DataFormat format = DataFormat::automatic);

}  // namespace vocabpipe
