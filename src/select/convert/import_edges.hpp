// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/edge_input.hpp"
#include "src/select/files/graph_file.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace vocabpipe {

struct ImportOptions {
    int64_t samples = 0;  ///< 0: the largest number in an edge, plus one
    /// Bytes to work with: 8 per sample, and the rest for edges; with more, the file is read less
    /// often.
    uint64_t memory = uint64_t{1} << 30;
    std::function<void(const char* phase, int64_t done, int64_t total)> progress = {};
};

struct ImportReport {
    int64_t samples = 0, edges = 0;  ///< each edge once
    int64_t passes = 0;              ///< over the file
};

/// Writes a graph file from edges that are given once or in both directions, weights rounded to
/// 2^-20. InputFileError with the row, for a sample number that is too large, a self edge, a weight
/// that is negative, NaN or not below 2048, an edge given twice in one direction, or different
/// weights in both directions; OutOfMemoryError if 8 bytes per sample do not fit.
ImportReport import_edges(EdgeInput& input, const std::string& output,
                          const ImportOptions& options);
/// The same graph in a file without a name in `folder`. A killed process leaves one with a name,
/// which the next call with this folder removes.
[[nodiscard]] GraphFile import_edges_without_name(EdgeInput& input, const std::string& folder,
                                                  const ImportOptions& options);

}  // namespace vocabpipe
