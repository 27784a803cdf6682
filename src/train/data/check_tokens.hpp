// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// Smallest and largest id of a stream; {0, -1} for an empty one.
struct TokenRange {
    int32_t min = 0, max = -1;
};

/// Reads the whole stream once.
[[nodiscard]] TokenRange token_range(const TokenSource& source);

/// Reads the whole stream once and throws InputFileError with file, position, value, limit and
/// remedy if an id is not in [0, vocab_size). In a vocabulary shard such an id would silently give
/// garbage.
TokenRange check_tokens(const TokenSource& source, int64_t vocab_size);

}  // namespace vocabpipe
