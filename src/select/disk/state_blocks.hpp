// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace vocabpipe {

/// How a rank's state of samples is held: all of it in memory, or in files, of which one block of
/// samples at a time is in memory. Phases go through samples in the order of their ids, and
/// messages wait in files until their block's turn (Vitter 2008, "Algorithms and data structures
/// for external memory"), so that files are read and written front to back. Results do not depend
/// on it.
struct StateBlocks {
    int64_t samples = 0;  ///< of a block, at most; 0: all in memory
    /// Where the files are, and those in which messages to parts of samples wait.
    std::string folder = ".";
    /// Bytes of a block's messages that are written at once: long enough for disks, and few for a
    /// hundred blocks.
    uint64_t chunk_bytes = uint64_t{1} << 16;

    /// Blocks of a rank with `own` samples.
    [[nodiscard]] int64_t count(int64_t own) const {
        return samples == 0 ? 1 : std::max<int64_t>((own + samples - 1) / samples, 1);
    }
    /// Samples, or other elements in the order of samples, of each block but the last.
    [[nodiscard]] int64_t length(int64_t own, int64_t elements) const {
        const int64_t blocks = count(own);
        return std::max<int64_t>((elements + blocks - 1) / blocks, 1);
    }
};

}  // namespace vocabpipe
