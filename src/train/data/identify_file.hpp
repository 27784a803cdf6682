// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "src/train/data/data_file.hpp"

namespace vocabpipe {

/// What a file that has no tokens is instead.
struct FileIdentity {
    std::string description;  // "an llm.c model checkpoint", "gzip-compressed data"
    std::string remedy;       // what to do about it; never empty
    bool binary = false;      // compressed, an archive or a table: its bytes are no text
};

/// Looks at the first bytes of a file that no reader recognised.
[[nodiscard]] FileIdentity identify_bytes(std::span<const std::byte> head);

/// The same for a file.
[[nodiscard]] FileIdentity identify_file(const DataFile& file);

}  // namespace vocabpipe
