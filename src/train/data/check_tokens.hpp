// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// Smallest and largest id of the tokens that were read; {0, -1} for an empty stream.
struct TokenRange {
    int32_t min = 0, max = -1;
    int64_t read = 0;  ///< tokens
};

/// Read whole, whatever the size.
constexpr int64_t kAllTokens = std::numeric_limits<int64_t>::max();

/// Tokens that are read to check data before they are used, in all of their files: a second's work.
/// Evenly spaced blocks of larger data are read; the rest is checked when samples are read.
constexpr int64_t kCheckedTokens = int64_t{1} << 29;

/// Reads the stream once: all of it, or if it has more than `most` tokens, evenly spaced blocks of
/// 32,768 of them, at least the first and the last.
[[nodiscard]] TokenRange token_range(const TokenSource& source, int64_t most = kAllTokens);

/// The same, and throws InputFileError with file, position, value, limit and remedy if an id is not
/// in [0, vocab_size). In a vocabulary shard such an id would silently give garbage.
TokenRange check_tokens(const TokenSource& source, int64_t vocab_size, int64_t most = kAllTokens);

}  // namespace vocabpipe
