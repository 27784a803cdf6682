// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/corpus.hpp"
#include "src/select/files/tensor_input.hpp"
#include "src/select/files/tensor_output.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// A file of the graph of similar samples: "row_begin" I64 [n + 1], "neighbour" U32 and
/// "similarity" I32 [row_begin[n]]. Row v lists the neighbours of sample v, ascending, and their
/// similarities (fixed point, 2^20 is 1). An edge is in the rows of both of its ends. In version 2,
/// "neighbour_high" U8 has bits 32 to 39 of the neighbours, and "neighbour" the lower ones: 9 bytes
/// per neighbour instead of 8. A part of a graph has "first_row" in its metadata, and the rows from
/// there on alone; its "row_begin" counts its own entries.
class GraphFile {
public:
    static constexpr const char* kFormat = "vocabpipe graph 1";
    static constexpr const char* kWideFormat = "vocabpipe graph 2";
    static constexpr int64_t kMostNodes = int64_t{1} << 40;
    /// Files of at most so many samples are written in version 1.
    static constexpr int64_t kMostNarrowNodes = int64_t{1} << 32;
    /// Most neighbours of one row: 2^32 similarities below 2^31 have a sum of 63 bits.
    static constexpr int64_t kMostNeighbours = int64_t{1} << 32;

    /// What a file may hold.
    enum class Rows : uint8_t { all, some };

    /// Reads and checks the header and the shapes, not the rows. InputFileError; also of a part if
    /// `rows` is all. Messages about the graph call it `name`, or `path` if that is empty.
    explicit GraphFile(const std::string& path, Rows rows = Rows::all, std::string name = {});

    [[nodiscard]] const std::string& path() const { return name_.empty() ? file_.path() : name_; }
    [[nodiscard]] const Corpus& corpus() const { return corpus_; }
    [[nodiscard]] const std::map<std::string, std::string>& metadata() const {
        return file_.metadata();
    }
    [[nodiscard]] int64_t nodes() const { return corpus_.samples; }
    /// The rows that it has: all but for a part.
    [[nodiscard]] int64_t first_row() const { return first_row_; }
    [[nodiscard]] int64_t last_row() const { return first_row_ + row_begin_->shape.front() - 1; }
    /// Neighbours in its rows: of all rows, twice the edges.
    [[nodiscard]] int64_t entries() const { return entries_; }

private:
    friend class GraphRows;

    TensorInput file_;
    std::string name_;  ///< empty: the path
    Corpus corpus_;
    int64_t first_row_ = 0;
    const StoredTensor* row_begin_ = nullptr;
    const StoredTensor* neighbour_ = nullptr;
    const StoredTensor* neighbour_high_ = nullptr;  ///< version 2
    const StoredTensor* similarity_ = nullptr;
    int64_t entries_ = 0;
};

/// One row of a graph.
struct GraphRow {
    int64_t node = 0;
    int64_t begin = 0;  ///< number of entries in earlier rows
    std::span<const int64_t> neighbours;
    std::span<const int32_t> similarities;

    [[nodiscard]] size_t degree() const { return neighbours.size(); }
};

/// Reads rows of a graph by blocks and checks each row: its begin and end, its neighbours (below n,
/// ascending, not itself) and similarities (at least 0). GraphCheck checks that edges are in both
/// rows.
///
///     GraphRows rows(graph);
///     for (int64_t v = first; v < last; ++v) use(rows.at(v));
class GraphRows {
public:
    static constexpr uint64_t kBufferBytes = uint64_t{1} << 20;
    /// Memory of a reader if the longest row has `longest_row` neighbours.
    [[nodiscard]] static uint64_t bytes(int64_t longest_row, uint64_t buffer_bytes = kBufferBytes);

    /// The graph must outlive it. `buffer_bytes`: read ahead; grows only for longer rows.
    explicit GraphRows(const GraphFile& graph, uint64_t buffer_bytes = kBufferBytes);

    /// The row, one of the file's, valid until the next call. Meant for ascending rows; skips gaps
    /// between them if that saves time. InputFileError names file, row and values.
    [[nodiscard]] GraphRow at(int64_t node);
    /// The number of neighbours; reads only "row_begin".
    [[nodiscard]] int64_t degree(int64_t node);

private:
    struct Range {
        int64_t begin = 0, end = 0;
    };
    [[nodiscard]] Range range_of(int64_t node);
    void read_neighbours(int64_t first);
    void check(const GraphRow& row) const;
    [[noreturn]] void fail(int64_t node, const std::string& what) const;

    const GraphFile& graph_;
    size_t most_begins_, most_entries_;  ///< elements of a block
    std::vector<int64_t> begins_;        ///< row_begin from first_begin_ on
    int64_t first_begin_ = 0;
    std::vector<int64_t> neighbours_;  ///< entries from first_entry_ on
    std::vector<int32_t> similarities_;
    int64_t first_entry_ = 0;
    size_t block_ = 0;  ///< entries to read at once; grows while rows follow each other
};

/// Rows of a graph, from the first up to the one before the last.
struct PartRows {
    int64_t first = 0, last = 0;
};

/// Writes such a file, all ranks together: each writes its rows.
class GraphOutput {
public:
    /// `entries`: neighbours in all rows. More samples than `most_narrow_nodes` make it a file of
    /// version 2; fewer than 2^32 are for tests. Collective.
    GraphOutput(Communicator& world, const std::string& path, const Corpus& corpus, int64_t entries,
                std::map<std::string, std::string> metadata = {},
                int64_t most_narrow_nodes = GraphFile::kMostNarrowNodes);
    /// A part of a graph with these rows, which have `entries`. Collective.
    GraphOutput(Communicator& world, const std::string& path, const Corpus& corpus,
                const PartRows& rows, int64_t entries, std::map<std::string, std::string> metadata);

    /// row_begin[first], row_begin[first + 1], ...; of a part from its first row on.
    void write_row_begin(int64_t first, std::span<const int64_t> begins) {
        file_.write("row_begin", first, begins);
    }
    /// Entries from `first` on; equally many of both.
    void write_entries(int64_t first, std::span<const int64_t> neighbours,
                       std::span<const int32_t> similarities);
    /// Collective.
    void publish() { file_.publish(); }
    /// Instead of publish(), on one rank: opens the graph, which keeps no name. Messages call it
    /// `name`.
    [[nodiscard]] GraphFile open_unpublished(const std::string& name) const {
        return GraphFile(file_.unpublished_name(), GraphFile::Rows::all, name);
    }

private:
    bool wide_;  ///< version 2
    TensorOutput file_;
};

}  // namespace vocabpipe
