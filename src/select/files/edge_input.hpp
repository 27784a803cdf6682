// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace vocabpipe {

/// An edge as others give it.
struct WeightedEdge {
    int64_t source = 0, destination = 0;
    double weight = 0;
};

/// Rows (src, dst, weight) of a file, read from the first to the last, as often as one wants.
class EdgeInput {
public:
    virtual ~EdgeInput() = default;
    EdgeInput(const EdgeInput&) = delete;
    EdgeInput& operator=(const EdgeInput&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] int64_t edges() const { return edges_; }
    /// From row `first` on. InputFileError for ids that are no whole numbers of at least 0; what
    /// weights are is the caller's to check.
    virtual void read(int64_t first, std::span<WeightedEdge> to) = 0;

protected:
    EdgeInput(std::string path, int64_t edges) : path_(std::move(path)), edges_(edges) {}

private:
    std::string path_;
    int64_t edges_;
};

/// .npy (three columns) or .parquet (columns src, dst and weight). InputFileError.
[[nodiscard]] std::unique_ptr<EdgeInput> open_edges(const std::string& path);

}  // namespace vocabpipe
