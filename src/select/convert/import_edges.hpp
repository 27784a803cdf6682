// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/edge_input.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace vocabpipe {

struct ImportOptions {
    int64_t samples = 0;  ///< 0: the largest number of an edge, and one more
    /// Bytes to work with: 8 per sample, and the more of the others, the seldomer the file is read.
    uint64_t memory = uint64_t{1} << 30;
    std::function<void(const char* phase, int64_t done, int64_t total)> progress = {};
};

struct ImportReport {
    int64_t samples = 0, edges = 0;  ///< each edge once
    int64_t passes = 0;              ///< over the file
};

/// Writes a graph file of edges that are given once or in both directions, weights rounded to
/// 2^-20. InputFileError names the row of a sample beyond the others, a self edge, a weight that is
/// negative, NaN or not below 2048, an edge given twice in one direction, and of one whose
/// directions have different weights; OutOfMemoryError, where 8 bytes per sample are too many.
ImportReport import_edges(EdgeInput& input, const std::string& output,
                          const ImportOptions& options);

}  // namespace vocabpipe
