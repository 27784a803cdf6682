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

/// Reads the whole stream once and throws InputFileError if an id is not in [0, vocab_size): file,
/// position, value, limit and remedy. An id out of range would be silent garbage in a vocabulary
/// shard.
TokenRange check_tokens(const TokenSource& source, int64_t vocab_size);

}  // namespace vocabpipe
