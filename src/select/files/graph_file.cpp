// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/graph_file.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe {

namespace {

constexpr uint64_t kEntryBytes = sizeof(uint32_t) + sizeof(int32_t);
constexpr size_t kFirstBlock = 512;  // entries: a page of each tensor or less

std::map<std::string, std::string> with_corpus(std::map<std::string, std::string> metadata,
                                               const Corpus& corpus) {
    metadata["format"] = GraphFile::kFormat;
    corpus.write_to(metadata);
    return metadata;
}

}  // namespace

GraphFile::GraphFile(const std::string& path)
    : file_(path, kFormat),
      corpus_(Corpus::read_from(file_.metadata(), path)),
      row_begin_(&file_.at("row_begin", StoredType::I64, 1)),
      neighbour_(&file_.at("neighbour", StoredType::U32, 1)),
      similarity_(&file_.at("similarity", StoredType::I32, 1)),
      entries_(neighbour_->shape.front()) {
    const auto refuse = [&](const std::string& what) { throw InputFileError(path + ": " + what); };
    if (nodes() > kMostNodes) {
        refuse("has " + std::to_string(nodes()) + " samples; at most 2^32 can be numbered");
    }
    if (row_begin_->shape.front() != nodes() + 1) {
        refuse("tensor row_begin: has " + shape_text(row_begin_->shape) + " elements for " +
               std::to_string(nodes()) + " samples; it must have one more than there are samples");
    }
    if (similarity_->shape != neighbour_->shape) {
        refuse("tensors neighbour and similarity: have shapes " + shape_text(neighbour_->shape) +
               " and " + shape_text(similarity_->shape) + "; they must be equal");
    }
    int64_t first = 0;
    int64_t last = 0;
    file_.read(*row_begin_, 0, std::span(&first, 1));
    file_.read(*row_begin_, nodes(), std::span(&last, 1));
    if (first != 0 || last != entries_) {
        refuse("tensor row_begin: goes from " + std::to_string(first) + " to " +
               std::to_string(last) + "; it must go from 0 to the length of neighbour, " +
               std::to_string(entries_));
    }
}

uint64_t GraphRows::bytes(int64_t longest_row, uint64_t buffer_bytes) {
    return buffer_bytes + static_cast<uint64_t>(longest_row) * kEntryBytes;
}

GraphRows::GraphRows(const GraphFile& graph, uint64_t buffer_bytes)
    : graph_(graph),
      most_begins_(std::max<size_t>(buffer_bytes / 8 / sizeof(int64_t), 2)),
      most_entries_(std::max<size_t>(buffer_bytes / 8 * 7 / kEntryBytes, 1)) {}

void GraphRows::fail(int64_t node, const std::string& what) const {
    throw InputFileError(graph_.path() + ": row " + std::to_string(node) + ": " + what);
}

GraphRows::Range GraphRows::range_of(int64_t node) {
    const auto have = std::ssize(begins_);
    if (node < first_begin_ || node + 1 >= first_begin_ + have) {
        // Reads few elements for a distant row, and ever more while rows follow each other.
        const bool follows = node >= first_begin_ && node <= first_begin_ + have;
        const size_t wanted = follows ? std::max<size_t>(begins_.size() * 4, 64) : 64;
        const auto left = static_cast<size_t>(graph_.nodes() + 1 - node);
        begins_.resize(std::min({wanted, most_begins_, left}));
        first_begin_ = node;
        graph_.file_.read(*graph_.row_begin_, node, std::span(begins_));
    }
    const auto at = static_cast<size_t>(node - first_begin_);
    const Range range{.begin = begins_[at], .end = begins_[at + 1]};
    if (range.begin < 0 || range.end < range.begin || range.end > graph_.entries()) {
        fail(node, "row_begin goes from " + std::to_string(range.begin) + " to " +
                       std::to_string(range.end) + "; it must ascend from 0 to " +
                       std::to_string(graph_.entries()));
    }
    if (range.end - range.begin >= graph_.nodes()) {
        fail(node, "has " + std::to_string(range.end - range.begin) +
                       " neighbours; there are only " + std::to_string(graph_.nodes() - 1) +
                       " other samples");
    }
    return range;
}

int64_t GraphRows::degree(int64_t node) {
    const Range range = range_of(node);
    return range.end - range.begin;
}

GraphRow GraphRows::at(int64_t node) {
    const Range range = range_of(node);
    const auto degree = static_cast<size_t>(range.end - range.begin);
    const int64_t have = first_entry_ + std::ssize(neighbours_);
    if (degree > 0 && (range.begin < first_entry_ || range.end > have)) {
        const bool follows =
            range.begin >= first_entry_ && range.begin - have <= static_cast<int64_t>(block_);
        block_ = follows ? std::min(std::max(block_ * 2, kFirstBlock), most_entries_)
                         : std::min(kFirstBlock, most_entries_);
        const size_t wanted = std::max(block_, degree);
        const auto left = static_cast<size_t>(graph_.entries() - range.begin);
        neighbours_.resize(std::min(wanted, left));
        similarities_.resize(neighbours_.size());
        first_entry_ = range.begin;
        graph_.file_.read(*graph_.neighbour_, range.begin, std::span(neighbours_));
        graph_.file_.read(*graph_.similarity_, range.begin, std::span(similarities_));
    }
    GraphRow row{.node = node, .begin = range.begin};
    if (degree > 0) {
        const auto offset = static_cast<size_t>(range.begin - first_entry_);
        row.neighbours = std::span<const uint32_t>(neighbours_).subspan(offset, degree);
        row.similarities = std::span<const int32_t>(similarities_).subspan(offset, degree);
    }
    check(row);
    return row;
}

void GraphRows::check(const GraphRow& row) const {
    int64_t before = -1;
    for (size_t i = 0; i < row.degree(); ++i) {
        const int64_t neighbour = row.neighbours[i];
        const int32_t similarity = row.similarities[i];
        if (neighbour > before && neighbour != row.node && similarity >= 0) {
            before = neighbour;
            continue;
        }
        if (neighbour == row.node) {
            fail(row.node, "names itself as a neighbour; remove such edges");
        }
        if (similarity < 0) {
            fail(row.node, "neighbour " + std::to_string(neighbour) + " has similarity " +
                               std::to_string(similarity) + "; it must be at least 0");
        }
        fail(row.node,
             "neighbour " + std::to_string(neighbour) + " follows " + std::to_string(before) +
                 (neighbour == before ? "; an edge may be given once" : "; they must ascend"));
    }
    if (before >= graph_.nodes()) {
        fail(row.node, "neighbour " + std::to_string(before) + " is beyond the " +
                           std::to_string(graph_.nodes()) + " samples");
    }
}

GraphOutput::GraphOutput(Communicator& world, const std::string& path, const Corpus& corpus,
                         int64_t entries, std::map<std::string, std::string> metadata)
    : file_(world, path,
            {{.name = "row_begin", .type = StoredType::I64, .shape = {corpus.samples + 1}},
             {.name = "neighbour", .type = StoredType::U32, .shape = {entries}},
             {.name = "similarity", .type = StoredType::I32, .shape = {entries}}},
            with_corpus(std::move(metadata), corpus)) {}

}  // namespace vocabpipe
