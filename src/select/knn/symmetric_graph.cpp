// SPDX-License-Identifier: Apache-2.0
// Two passes over the nearest lists: the first counts the entries of every row, so that each rank
// knows where its rows begin in the file; the second collects the rows by chunks and writes them.
#include "src/select/knn/symmetric_graph.hpp"

#include "src/select/files/graph_file.hpp"
#include "src/select/packed_id.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// A message to the owner of `to`: `to` is among the nearest of `from`.
struct DirectedEdge {
    PackedId to, from;
    int32_t similarity = 0;
};

/// The rows that an owner collects.
struct RowRange {
    int64_t begin = 0, end = 0;
};

std::vector<RowRange> ranges_of_all(Communicator& world, const RowRange& mine) {
    const auto all = world.all_gather(std::as_bytes(std::span(&mine, 1)));
    std::vector<RowRange> ranges(all.size());
    for (size_t i = 0; i < all.size(); ++i) std::memcpy(&ranges[i], all[i].data(), sizeof mine);
    return ranges;
}

/// Bytes per entry of a chunk while its row is collected: the entry itself, and its form when it is
/// written.
constexpr uint64_t kChunkEntryBytes = sizeof(RowEntry) + sizeof(int64_t) + sizeof(int32_t);

class SymmetricGraph {
public:
    SymmetricGraph(Communicator& world, const TileOwners& owners, const NeighbourRows& nearest,
                   const KnnOptions& options, uint64_t chunk_bytes)
        : world_(world),
          owners_(owners),
          nearest_(nearest),
          options_(options),
          chunk_entries_(static_cast<int64_t>(chunk_bytes / kChunkEntryBytes)),
          first_(owners.begin(world.rank())),
          last_(owners.end(world.rank())) {}

    GraphCounts count() {
        begins_.assign(static_cast<size_t>(last_ - first_) + 1, 0);
        send_edges({first_, last_},
                   [&](const DirectedEdge& edge) { ++degree_after(edge.to.value()); });
        int64_t isolated = 0;
        int64_t longest = 0;
        for (int64_t v = first_; v < last_; ++v) {
            int64_t& degree = degree_after(v);
            degree += std::ssize(nearest_.row(v - first_));
            longest = std::max(longest, degree);
            isolated += degree == 0 ? 1 : 0;
            degree += begin_of(v);
        }
        entries_before_ = sum_of_ranks_before(world_, begins_.back());
        world_.agree([&] { check_longest(longest); });
        return {.entries = sum_over_ranks(world_, begins_.back()),
                .longest_row = largest_over_ranks(world_, longest),
                .without_neighbours = sum_over_ranks(world_, isolated)};
    }

    void write(GraphOutput& file, int64_t entries) {
        world_.agree([&] {
            if (world_.rank() == 0) file.write_row_begin(owners_.samples(), std::span(&entries, 1));
            write_row_begins(file);
        });
        for (int64_t begin = first_;;) {
            const RowRange chunk{.begin = begin, .end = end_of_chunk(begin)};
            if (largest_over_ranks(world_, chunk.begin < chunk.end ? 1 : 0) == 0) break;
            put_together(chunk);
            world_.agree([&] { write_chunk(file, chunk); });
            begin = chunk.end;
            options_.report("rows of the graph", begin - first_, last_ - first_);
        }
    }

private:
    // Begins of the rows, within this rank's entries.
    [[nodiscard]] int64_t begin_of(int64_t v) const {
        return begins_[static_cast<size_t>(v - first_)];
    }
    [[nodiscard]] int64_t& degree_after(int64_t v) {
        return begins_[static_cast<size_t>(v - first_) + 1];
    }

    void check_longest(int64_t longest) const {
        const auto bytes = static_cast<uint64_t>(longest) * kChunkEntryBytes;
        if (options_.memory == 0 || longest <= chunk_entries_ || bytes <= options_.memory / 2) {
            return;
        }
        throw OutOfMemoryError("a sample is among the nearest of " + std::to_string(longest) +
                               " others: its row takes " + std::to_string(bytes) +
                               " bytes, --memory allows " + std::to_string(options_.memory) +
                               "; allow more, or use fewer --neighbours");
    }

    /// Calls `receive` with the edges to the rows of `mine` that these do not have yet; every rank
    /// passes its own rows.
    template <typename Receive>
    void send_edges(const RowRange& mine, const Receive& receive) {
        const std::vector<RowRange> ranges = ranges_of_all(world_, mine);
        std::vector<std::vector<std::byte>> to_each(ranges.size());
        const size_t most = options_.batch_bytes / ranges.size();
        int64_t v = first_;
        for (bool anybody = true; anybody;) {
            for (size_t waiting = 0; v < last_ && waiting < most; ++v) {
                waiting += send_row(v, ranges, to_each);
            }
            for (const auto& bytes : world_.all_to_all(to_each)) {
                receive_all(bytes, receive);
            }
            for (auto& bytes : to_each) bytes.clear();
            anybody = largest_over_ranks(world_, v < last_ ? 1 : 0) > 0;
        }
    }
    /// Returns the number of bytes added.
    size_t send_row(int64_t v, const std::vector<RowRange>& ranges,
                    std::vector<std::vector<std::byte>>& to_each) const {
        size_t added = 0;
        for (const RowEntry entry : nearest_.row(v - first_)) {
            const int64_t to = neighbour_of(entry);
            const auto owner = static_cast<size_t>(owners_.owner_of(to));
            if (to < ranges[owner].begin || to >= ranges[owner].end) continue;
            const DirectedEdge edge{
                .to = PackedId(to), .from = PackedId(v), .similarity = weight_of(entry)};
            const auto bytes = std::as_bytes(std::span(&edge, 1));
            to_each[owner].insert(to_each[owner].end(), bytes.begin(), bytes.end());
            added += bytes.size();
        }
        return added;
    }
    template <typename Receive>
    void receive_all(std::span<const std::byte> bytes, const Receive& receive) const {
        for (size_t at = 0; at < bytes.size(); at += sizeof(DirectedEdge)) {
            DirectedEdge edge;
            std::memcpy(&edge, bytes.data() + at, sizeof edge);
            if (!nearest_.contains(edge.to.value() - first_, edge.from.value())) receive(edge);
        }
    }

    /// End of the chunk: as many rows as fit, at least one.
    [[nodiscard]] int64_t end_of_chunk(int64_t begin) const {
        if (begin >= last_) return begin;
        int64_t end = begin + 1;
        while (end < last_ && begin_of(end + 1) - begin_of(begin) <= chunk_entries_) ++end;
        return end;
    }
    void put_together(const RowRange& chunk) {
        const int64_t base = begin_of(chunk.begin);
        entries_.resize(static_cast<size_t>(begin_of(chunk.end) - base));
        std::vector<int64_t> next(static_cast<size_t>(chunk.end - chunk.begin));
        const auto append = [&](int64_t v, RowEntry entry) {
            entries_[static_cast<size_t>(next[static_cast<size_t>(v - chunk.begin)]++)] = entry;
        };
        for (int64_t v = chunk.begin; v < chunk.end; ++v) {
            next[static_cast<size_t>(v - chunk.begin)] = begin_of(v) - base;
            for (const RowEntry entry : nearest_.row(v - first_)) append(v, entry);
        }
        send_edges(chunk, [&](const DirectedEdge& edge) {
            append(edge.to.value(), row_entry(edge.from.value(), edge.similarity));
        });
        for (int64_t v = chunk.begin; v < chunk.end; ++v) {
            const auto row =
                std::span(entries_).subspan(static_cast<size_t>(begin_of(v) - base),
                                            static_cast<size_t>(begin_of(v + 1) - begin_of(v)));
            std::ranges::sort(row);
        }
    }
    void write_chunk(GraphOutput& file, const RowRange& chunk) const {
        std::vector<int64_t> neighbours(entries_.size());
        std::vector<int32_t> similarities(entries_.size());
        std::ranges::transform(entries_, neighbours.begin(), neighbour_of);
        std::ranges::transform(entries_, similarities.begin(), weight_of);
        file.write_entries(entries_before_ + begin_of(chunk.begin),
                           std::span<const int64_t>(neighbours),
                           std::span<const int32_t>(similarities));
    }
    void write_row_begins(GraphOutput& file) const {
        constexpr int64_t kAtOnce = 1 << 16;
        std::vector<int64_t> block;
        for (int64_t v = first_; v < last_; v += std::ssize(block)) {
            block.clear();
            for (int64_t w = v; w < std::min(last_, v + kAtOnce); ++w) {
                block.push_back(entries_before_ + begin_of(w));
            }
            file.write_row_begin(v, std::span<const int64_t>(block));
        }
    }

    Communicator& world_;
    const TileOwners& owners_;
    const NeighbourRows& nearest_;
    const KnnOptions& options_;
    int64_t chunk_entries_;
    int64_t first_, last_;
    std::vector<int64_t> begins_;
    int64_t entries_before_ = 0;  // on the ranks before this one
    std::vector<RowEntry> entries_;
};

}  // namespace

uint64_t symmetric_graph_bytes(int64_t rows, int ranks, const KnnOptions& options,
                               uint64_t chunk_bytes) {
    const uint64_t of_row = static_cast<uint64_t>(options.neighbours) * sizeof(DirectedEdge);
    const uint64_t of_each = options.batch_bytes / static_cast<uint64_t>(ranks) + of_row;
    // Growing vectors may take twice their size; from each rank one may receive as much.
    const uint64_t messages = of_each * (2 + static_cast<uint64_t>(ranks));
    // Begins of rows, for all rows and for a chunk.
    return static_cast<uint64_t>(rows + 1) * 2 * sizeof(int64_t) + messages + chunk_bytes;
}

GraphCounts write_symmetric_graph(Communicator& world, const TileOwners& owners,
                                  const NeighbourRows& nearest, const KnnOptions& options,
                                  uint64_t chunk_bytes, const std::string& path,
                                  const Corpus& corpus,
                                  std::map<std::string, std::string> metadata) {
    SymmetricGraph graph(world, owners, nearest, options, chunk_bytes);
    const GraphCounts counts = graph.count();
    GraphOutput file(world, path, corpus, counts.entries, std::move(metadata));
    graph.write(file, counts.entries);
    file.publish();
    return counts;
}

}  // namespace vocabpipe
