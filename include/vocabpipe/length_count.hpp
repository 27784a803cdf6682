// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vocabpipe {

/// How many of something have a length: documents of so many rows, microbatches of sequences of so
/// many tokens.
struct LengthCount {
    int64_t length = 0;  ///< at least 1
    int64_t count = 0;   ///< how many have it
    /// Member by member.
    friend bool operator==(const LengthCount&, const LengthCount&) = default;
};

}  // namespace vocabpipe
