// SPDX-License-Identifier: Apache-2.0
#include "src/select/convert/import_edges.hpp"

#include "src/select/disk/scratch_file.hpp"
#include "src/select/files/graph_file.hpp"
#include "src/select/files/sample_input.hpp"
#include "src/select/packed_id.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/world.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

constexpr int64_t kReadAtOnce = 1 << 15;

/// An edge as an entry in the row of one of its ends.
struct RowEdge {
    PackedId node, neighbour;
    bool forward = false;  // from node to neighbour
    int32_t similarity = 0;
    int64_t row = 0;  // of the file

    bool operator<(const RowEdge& other) const {
        return std::tie(node, neighbour, row) < std::tie(other.node, other.neighbour, other.row);
    }
    [[nodiscard]] std::string text() const {
        return "edge " + std::to_string((forward ? node : neighbour).value()) + " to " +
               std::to_string((forward ? neighbour : node).value());
    }
};

class EdgeImport {
public:
    EdgeImport(EdgeInput& input, const ImportOptions& options) : input_(input), options_(options) {}

    /// Calls `finish` when all is written.
    ImportReport run(const std::string& output, const std::function<void(GraphOutput&)>& finish) {
        find_samples();
        count();
        cut();
        // The lengths of rows are known only after edges given in both directions are merged.
        for (size_t part = 0; part + 1 < cuts_.size(); ++part) {
            collect(part);
            for (const RowEdge& edge : edges_) ++degree_of(edge.node.value());
        }
        int64_t entries = 0;
        for (const int64_t degree : degree_) entries += degree;
        World::threads(1).run([&](Communicator& world) { write(world, output, entries, finish); });
        return {.samples = samples_, .edges = entries / 2, .passes = passes_};
    }

private:
    [[nodiscard]] int64_t& degree_of(int64_t node) { return degree_[static_cast<size_t>(node)]; }
    [[noreturn]] void refuse(int64_t row, const std::string& what) const {
        throw InputFileError(input_.path() + ": row " + std::to_string(row) + ": " + what);
    }

    /// Passes on all edges, after the checks that need only one edge.
    template <typename Use>
    void for_all(const char* phase, const Use& use) {
        std::vector<WeightedEdge> block;
        for (int64_t first = 0; first < input_.edges(); first += std::ssize(block)) {
            block.resize(static_cast<size_t>(std::min(kReadAtOnce, input_.edges() - first)));
            input_.read(first, block);
            for (size_t i = 0; i < block.size(); ++i)
                use(first + static_cast<int64_t>(i), block[i]);
            if (options_.progress) options_.progress(phase, first, input_.edges());
        }
        ++passes_;
    }

    void find_samples() {
        const int64_t limit = options_.samples > 0 ? options_.samples : GraphFile::kMostNodes;
        int64_t largest = -1;
        for_all("checking edges", [&](int64_t row, const WeightedEdge& edge) {
            for (const int64_t end : {edge.source, edge.destination}) {
                if (end >= 0 && end < limit) continue;
                refuse(row, "names sample " + std::to_string(end) +
                                "; samples are numbered from 0 to " +
                                (options_.samples > 0 ? std::to_string(limit - 1) : "2^40 - 1"));
            }
            if (edge.source == edge.destination) {
                refuse(row, "joins sample " + std::to_string(edge.source) +
                                " with itself; remove such edges");
            }
            (void)fixed_point_from(edge.weight, place_of(input_.path(), row, "weight"));
            largest = std::max({largest, edge.source, edge.destination});
        });
        samples_ = options_.samples > 0 ? options_.samples : largest + 1;
        if (samples_ == 0) {
            throw InputFileError(input_.path() +
                                 ": has no edges; give --samples for a graph "
                                 "without edges");
        }
        check_numbers();
        const uint64_t needed = static_cast<uint64_t>(samples_) * sizeof(int64_t);
        if (needed > options_.memory) {
            throw OutOfMemoryError(input_.path() + ": edges of " + std::to_string(samples_) +
                                   " samples need " + std::to_string(needed) +
                                   " bytes; give --memory of at least as much");
        }
    }
    /// Sample numbers far beyond the number of edges are other ids, not numbers from 0 on.
    void check_numbers() const {
        constexpr int64_t kFew = int64_t{1} << 20;  // a file of 8 MiB
        constexpr int64_t kSamplesPerEdge = 64;
        if (options_.samples > 0 || samples_ <= kFew ||
            samples_ / kSamplesPerEdge <= input_.edges()) {
            return;
        }
        throw InputFileError(
            input_.path() + ": names sample " + std::to_string(samples_ - 1) + ", but has only " +
            std::to_string(input_.edges()) + (input_.edges() == 1 ? " edge" : " edges") +
            ", and the graph would take " +
            std::to_string((static_cast<uint64_t>(samples_) * sizeof(int64_t)) >> 20) +
            " MiB; number the samples from 0 on, or set --samples " + std::to_string(samples_) +
            " if there are so many");
    }
    void count() {
        degree_.assign(static_cast<size_t>(samples_), 0);
        for_all("counting", [&](int64_t, const WeightedEdge& edge) {
            ++degree_of(edge.source);
            ++degree_of(edge.destination);
        });
    }
    /// Cuts the rows into parts whose edges fit in memory.
    void cut() {
        const uint64_t left = options_.memory - static_cast<uint64_t>(samples_) * sizeof(int64_t);
        const auto most = static_cast<int64_t>(left / sizeof(RowEdge));
        int64_t edges = 0;
        cuts_ = {0};
        for (int64_t v = 0; v < samples_; ++v) {
            const int64_t degree = degree_of(v);
            if (edges > 0 && edges + degree > most) {
                cuts_.push_back(v);
                edges = 0;
            }
            edges += degree;
        }
        cuts_.push_back(samples_);
        std::ranges::fill(degree_, 0);
    }

    /// Collects the rows of a part: each edge once in each of its rows.
    void collect(size_t part) {
        if (part == collected_) return;
        const int64_t begin = cuts_[part];
        const int64_t end = cuts_[part + 1];
        edges_.clear();
        for_all("collecting rows", [&](int64_t row, const WeightedEdge& edge) {
            const int32_t similarity =
                fixed_point_from(edge.weight, place_of(input_.path(), row, "weight"));
            const auto add = [&](int64_t node, int64_t neighbour, bool forward) {
                if (node < begin || node >= end) return;
                edges_.push_back({.node = PackedId(node),
                                  .neighbour = PackedId(neighbour),
                                  .forward = forward,
                                  .similarity = similarity,
                                  .row = row});
            };
            add(edge.source, edge.destination, true);
            add(edge.destination, edge.source, false);
        });
        std::ranges::sort(edges_, std::less<>());
        for (size_t i = 1; i < edges_.size(); ++i) check_pair(edges_[i - 1], edges_[i]);
        // Not std::ranges::unique, which clang 14 does not compile.
        const auto again = [](const RowEdge& a, const RowEdge& b) {
            return a.node == b.node && a.neighbour == b.neighbour;
        };
        edges_.erase(std::unique(edges_.begin(), edges_.end(), again), edges_.end());
        collected_ = part;
    }
    void check_pair(const RowEdge& a, const RowEdge& b) const {
        if (a.node != b.node || a.neighbour != b.neighbour) return;
        if (a.forward == b.forward) {
            refuse(b.row, b.text() + " is in row " + std::to_string(a.row) +
                              " already; an edge may be given once in each direction");
        }
        if (a.similarity != b.similarity) {
            refuse(b.row, b.text() + " has another weight than its other direction in row " +
                              std::to_string(a.row) + "; give both the same");
        }
    }

    void write(Communicator& world, const std::string& output, int64_t entries,
               const std::function<void(GraphOutput&)>& finish) {
        GraphOutput file(world, output, {.data = {}, .seq_length = 0, .samples = samples_}, entries,
                         {{"import.edges", std::to_string(entries / 2)}});
        std::vector<int64_t> begins;
        int64_t begin = 0;
        for (int64_t v = 0; v <= samples_; ++v) {
            begins.push_back(begin);
            if (v < samples_) begin += degree_of(v);
            if (std::ssize(begins) == kReadAtOnce || v == samples_) {
                file.write_row_begin(v + 1 - std::ssize(begins), std::span<const int64_t>(begins));
                begins.clear();
            }
        }
        int64_t written = 0;
        for (size_t part = 0; part + 1 < cuts_.size(); ++part) {
            collect(part);
            written += write_part(file, written);
        }
        finish(file);
    }
    int64_t write_part(GraphOutput& file, int64_t first) const {
        std::vector<int64_t> neighbours;
        std::vector<int32_t> similarities;
        for (size_t begin = 0; begin < edges_.size(); begin += neighbours.size()) {
            const size_t count = std::min<size_t>(kReadAtOnce, edges_.size() - begin);
            neighbours.resize(count);
            similarities.resize(count);
            for (size_t i = 0; i < count; ++i) {
                neighbours[i] = edges_[begin + i].neighbour.value();
                similarities[i] = edges_[begin + i].similarity;
            }
            file.write_entries(first + static_cast<int64_t>(begin),
                               std::span<const int64_t>(neighbours),
                               std::span<const int32_t>(similarities));
        }
        return std::ssize(edges_);
    }

    EdgeInput& input_;
    const ImportOptions& options_;
    int64_t samples_ = 0, passes_ = 0;
    std::vector<int64_t> degree_;
    std::vector<int64_t> cuts_;  // first rows of parts, and the number of rows
    std::vector<RowEdge> edges_;
    size_t collected_ = SIZE_MAX;  // the part that edges_ holds
};

}  // namespace

ImportReport import_edges(EdgeInput& input, const std::string& output,
                          const ImportOptions& options) {
    return EdgeImport(input, options).run(output, [](GraphOutput& file) { file.publish(); });
}

GraphFile import_edges_without_name(EdgeInput& input, const std::string& folder,
                                    const ImportOptions& options) {
    check_scratch_folder(folder);
    std::optional<GraphFile> graph;
    (void)EdgeImport(input, options)
        .run(folder + "/vocabpipe-scratch-graph",
             [&](GraphOutput& file) { graph.emplace(file.open_unpublished(input.path())); });
    return std::move(*graph);
}

}  // namespace vocabpipe
