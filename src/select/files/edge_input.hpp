// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/sample_graph.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace vocabpipe {

/// Rows (src, dst, weight) of a file, read front to back, any number of times.
class EdgeInput {
public:
    virtual ~EdgeInput() = default;
    EdgeInput(const EdgeInput&) = delete;
    EdgeInput& operator=(const EdgeInput&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] int64_t edges() const { return edges_; }
    /// Reads from row `first` on. InputFileError for ids that are not whole numbers of at least 0;
    /// the caller checks the weights.
    virtual void read(int64_t first, std::span<WeightedEdge> to) = 0;

protected:
    EdgeInput(std::string path, int64_t edges) : path_(std::move(path)), edges_(edges) {}

private:
    std::string path_;
    int64_t edges_;
};

/// Opens .npy (three columns) or .parquet (columns src, dst and weight). InputFileError.
[[nodiscard]] std::unique_ptr<EdgeInput> open_edges(const std::string& path);

}  // namespace vocabpipe
