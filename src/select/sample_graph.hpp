// SPDX-License-Identifier: Apache-2.0
// What the handles of vocabpipe/sample_graph.hpp hold.
#pragma once

#include "src/select/files/graph_file.hpp"
#include "src/select/files/sample_input.hpp"
#include "vocabpipe/sample_graph.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

class SampleGraph::Implementation {
public:
    explicit Implementation(const std::string& path)
        : file(path, GraphFile::Rows::some), path(path) {}
    explicit Implementation(GraphFile of_edges) : file(std::move(of_edges)) {}

    GraphFile file;    ///< open, and read by several ranks at once
    std::string path;  ///< empty: the file has none
};

class SampleUtilities::Implementation {
public:
    explicit Implementation(std::string path) : path_(std::move(path)) {}
    /// InputFileError.
    explicit Implementation(std::span<const double> utilities);

    /// A reader for one rank. InputFileError.
    [[nodiscard]] std::unique_ptr<UtilityInput> open() const;
    /// Empty: there is no file.
    [[nodiscard]] std::string path() const { return path_.value_or(std::string()); }

private:
    std::optional<std::string> path_;  ///< none: `values_`
    std::vector<int32_t> values_;      ///< multiples of 2^-20
};

}  // namespace vocabpipe
