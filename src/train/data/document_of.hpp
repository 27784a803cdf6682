// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// The last document that begins at or before `token`; the source must know its documents.
[[nodiscard]] inline int64_t document_of(const TokenSource& tokens, int64_t token) {
    int64_t low = 0;
    int64_t high = tokens.info().documents;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        (tokens.document_start(middle) <= token ? low : high) = middle;
    }
    return low;
}

}  // namespace vocabpipe
