// SPDX-License-Identifier: Apache-2.0
#include "src/select/sample_graph.hpp"

#include "src/select/convert/import_edges.hpp"
#include "src/select/disk/scratch_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace vocabpipe {

namespace {

/// The edges of a caller.
class GivenEdges final : public EdgeInput {
public:
    explicit GivenEdges(std::span<const WeightedEdge> edges)
        : EdgeInput("edges", std::ssize(edges)), edges_(edges) {}
    void read(int64_t first, std::span<WeightedEdge> to) override {
        std::ranges::copy(edges_.subspan(static_cast<size_t>(first), to.size()), to.begin());
    }

private:
    std::span<const WeightedEdge> edges_;
};

/// The utilities of a caller.
class GivenUtilities final : public UtilityInput {
public:
    explicit GivenUtilities(std::span<const int32_t> values)
        : UtilityInput("utilities", {.data = {}, .seq_length = 0, .samples = std::ssize(values)},
                       "imported"),
          values_(values) {}
    void read(int64_t first, std::span<int32_t> to) override {
        std::ranges::copy(values_.subspan(static_cast<size_t>(first), to.size()), to.begin());
    }

private:
    std::span<const int32_t> values_;
};

std::unique_ptr<SampleGraph::Implementation> graph_of_edges(int64_t samples,
                                                            std::span<const WeightedEdge> edges,
                                                            const std::string& folder) {
    if (samples < 1 || samples > GraphFile::kMostNodes) {
        throw UsageError("samples " + std::to_string(samples) + ": must be from 1 to 2^40");
    }
    GivenEdges input(edges);
    const ImportOptions defaults;
    const uint64_t of_rows = static_cast<uint64_t>(samples) * sizeof(int64_t);
    return std::make_unique<SampleGraph::Implementation>(
        import_edges_without_name(input, folder.empty() ? temporary_folder() : folder,
                                  {.samples = samples, .memory = of_rows + defaults.memory}));
}

}  // namespace

SampleGraph::SampleGraph(const std::string& path)
    : implementation_(std::make_unique<Implementation>(path)) {}
SampleGraph::SampleGraph(int64_t samples, std::span<const WeightedEdge> edges,
                         const std::string& folder)
    : implementation_(graph_of_edges(samples, edges, folder)) {}
SampleGraph::SampleGraph(SampleGraph&&) noexcept = default;
SampleGraph& SampleGraph::operator=(SampleGraph&&) noexcept = default;
SampleGraph::~SampleGraph() = default;

int64_t SampleGraph::samples() const {
    return implementation_->file.nodes();
}

SampleUtilities::SampleUtilities(std::string path)
    : implementation_(std::make_unique<Implementation>(std::move(path))) {}
SampleUtilities::SampleUtilities(std::span<const double> utilities)
    : implementation_(std::make_unique<Implementation>(utilities)) {}
SampleUtilities::SampleUtilities(SampleUtilities&&) noexcept = default;
SampleUtilities& SampleUtilities::operator=(SampleUtilities&&) noexcept = default;
SampleUtilities::~SampleUtilities() = default;

SampleUtilities::Implementation::Implementation(std::span<const double> utilities) {
    values_.reserve(utilities.size());
    for (size_t i = 0; i < utilities.size(); ++i) {
        values_.push_back(fixed_point_from(
            utilities[i], place_of("utilities", static_cast<int64_t>(i), "utility")));
    }
}

std::unique_ptr<UtilityInput> SampleUtilities::Implementation::open() const {
    if (path_) return open_utility(*path_);
    return std::make_unique<GivenUtilities>(values_);
}

}  // namespace vocabpipe
