// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace vocabpipe {

/// Two samples that are similar.
struct WeightedEdge {
    int64_t source = 0;       ///< a sample, numbered from 0
    int64_t destination = 0;  ///< another one; which of them is which says nothing
    double weight = 0;        ///< similarity, at least 0 and below 2048
};

/// Which samples are similar, and how much: the graph of a selection. Its rows stay in a file and
/// are read by blocks, so a graph may be larger than memory. Weights are rounded to 2^-20. Ranks
/// may share one. Move-only.
class SampleGraph {
public:
    /// Opens a file of `vocabpipe select knn` or `select import`, of write_neighbour_graph(), or a
    /// part of one (`select split`). Rows are checked as they are read. InputFileError.
    explicit SampleGraph(const std::string& path);
    /// A graph of `samples` samples, 1 to 2^40, with these edges, each once or in both directions
    /// with the same weight. It is put into a file without a name in `folder` (empty: that of the
    /// environment variable TMPDIR, or else /tmp), from which nothing remains; if the process is
    /// killed meanwhile, the next graph in that folder removes its file. Processes of one world
    /// give the same edges. Takes 8 bytes of memory per sample, and 1 GiB for edges at most;
    /// std::bad_alloc without them. UsageError for the number of samples. InputFileError names an
    /// edge by its place in `edges`: a number beyond `samples`, a sample's edge to itself, a weight
    /// that is out of range, an edge given twice. An OutputFileError, or an AgreedError with
    /// ExitCode::failed, if the file cannot be written.
    SampleGraph(int64_t samples, std::span<const WeightedEdge> edges,
                const std::string& folder = {});
    SampleGraph(SampleGraph&&) noexcept;             ///< the source has no graph any more
    SampleGraph& operator=(SampleGraph&&) noexcept;  ///< as above
    ~SampleGraph();

    /// Number of samples, also of those without edges.
    [[nodiscard]] int64_t samples() const;

    class Implementation;  ///< internal
    /// For select_samples().
    [[nodiscard]] const Implementation& implementation() const { return *implementation_; }

private:
    std::unique_ptr<Implementation> implementation_;
};

/// What each sample is worth by itself: its utility, at least 0 and below 2048, rounded to 2^-20.
/// Ranks may share one. Move-only.
class SampleUtilities {
public:
    /// Those of a file, which every rank opens and checks in select_samples(): `vocabpipe select
    /// score`'s, .npy with one number per sample, or .parquet where built with it.
    explicit SampleUtilities(std::string path);
    /// [sample], kept as 4 bytes per sample. Processes of one world give the same numbers.
    /// InputFileError names a sample whose utility is out of range or NaN.
    explicit SampleUtilities(std::span<const double> utilities);
    SampleUtilities(SampleUtilities&&) noexcept;             ///< the source has none any more
    SampleUtilities& operator=(SampleUtilities&&) noexcept;  ///< as above
    ~SampleUtilities();

    class Implementation;  ///< internal
    /// For select_samples().
    [[nodiscard]] const Implementation& implementation() const { return *implementation_; }

private:
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace vocabpipe
