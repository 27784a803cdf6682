// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/graph_file.hpp"

#include "src/support/parse_number.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe {

namespace {

constexpr const char* kFirstRow = "first_row";
constexpr uint64_t kEntryBytes = sizeof(int64_t) + sizeof(int32_t);
constexpr size_t kConvertedAtOnce = 4096;  // entries: 20 KiB
constexpr size_t kFirstBlock = 512;        // entries: a page of each tensor or less

std::map<std::string, std::string> with_corpus(std::map<std::string, std::string> metadata,
                                               const Corpus& corpus, bool wide) {
    metadata["format"] = wide ? GraphFile::kWideFormat : GraphFile::kFormat;
    corpus.write_to(metadata);
    return metadata;
}

std::map<std::string, std::string> with_first_row(std::map<std::string, std::string> metadata,
                                                  int64_t row) {
    metadata[kFirstRow] = std::to_string(row);
    return metadata;
}

std::vector<StoredTensor> tensors_of(int64_t rows, int64_t entries, bool wide) {
    std::vector<StoredTensor> tensors{
        {.name = "row_begin", .type = StoredType::I64, .shape = {rows + 1}},
        {.name = "neighbour", .type = StoredType::U32, .shape = {entries}},
        {.name = "similarity", .type = StoredType::I32, .shape = {entries}}};
    if (wide) {
        tensors.push_back({.name = "neighbour_high", .type = StoredType::U8, .shape = {entries}});
    }
    return tensors;
}

}  // namespace

GraphFile::GraphFile(const std::string& path, Rows rows, std::string name)
    : file_(path, {kFormat, kWideFormat}),
      name_(std::move(name)),
      corpus_(Corpus::read_from(file_.metadata(), path)),
      row_begin_(&file_.at("row_begin", StoredType::I64, 1)),
      neighbour_(&file_.at("neighbour", StoredType::U32, 1)),
      similarity_(&file_.at("similarity", StoredType::I32, 1)),
      entries_(neighbour_->shape.front()) {
    const auto refuse = [&](const std::string& what) { throw InputFileError(path + ": " + what); };
    const auto begin = file_.metadata().find(kFirstRow);
    const bool part = begin != file_.metadata().end();
    if (part) {
        const auto number = parse_number<int64_t>(begin->second);
        if (!number || *number < 0 || *number > nodes()) {
            refuse("metadata: first_row is \"" + begin->second +
                   "\"; it must be a number from 0 to " + std::to_string(nodes()));
        }
        first_row_ = *number;
    }
    const bool wide = file_.metadata().at("format") == kWideFormat;
    if (wide) neighbour_high_ = &file_.at("neighbour_high", StoredType::U8, 1);
    if (nodes() > (wide ? kMostNodes : kMostNarrowNodes)) {
        refuse("has " + std::to_string(nodes()) + " samples; at most " +
               (wide ? "2^40 can be numbered" : "2^32 can be numbered in version 1"));
    }
    if (part && (row_begin_->shape.front() < 1 || last_row() > nodes())) {
        refuse("tensor row_begin: has " + shape_text(row_begin_->shape) + " elements from row " +
               std::to_string(first_row_) + " on for " + std::to_string(nodes()) + " samples");
    }
    if (part && rows == Rows::all) {
        refuse("is a part of a graph, with rows " + std::to_string(first_row_) + " to " +
               std::to_string(last_row() - 1) + " of " + std::to_string(nodes()) +
               "; give the file that was split");
    }
    if (!part && row_begin_->shape.front() != nodes() + 1) {
        refuse("tensor row_begin: has " + shape_text(row_begin_->shape) + " elements for " +
               std::to_string(nodes()) + " samples; it must have one more than there are samples");
    }
    for (const StoredTensor* other : {similarity_, neighbour_high_}) {
        if (other == nullptr || other->shape == neighbour_->shape) continue;
        refuse("tensors neighbour and " + other->name + ": have shapes " +
               shape_text(neighbour_->shape) + " and " + shape_text(other->shape) +
               "; they must be equal");
    }
    int64_t first = 0;
    int64_t last = 0;
    file_.read(*row_begin_, 0, std::span(&first, 1));
    file_.read(*row_begin_, last_row() - first_row(), std::span(&last, 1));
    if (first != 0 || last != entries_) {
        refuse("tensor row_begin: goes from " + std::to_string(first) + " to " +
               std::to_string(last) + "; it must go from 0 to the length of neighbour, " +
               std::to_string(entries_));
    }
}

uint64_t GraphRows::bytes(int64_t longest_row, uint64_t buffer_bytes) {
    return buffer_bytes + static_cast<uint64_t>(longest_row) * kEntryBytes +
           kConvertedAtOnce * (sizeof(uint32_t) + sizeof(uint8_t));
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
        const auto left = static_cast<size_t>(graph_.last_row() + 1 - node);
        begins_.resize(std::min({wanted, most_begins_, left}));
        first_begin_ = node;
        graph_.file_.read(*graph_.row_begin_, node - graph_.first_row(), std::span(begins_));
    }
    const auto at = static_cast<size_t>(node - first_begin_);
    const Range range{.begin = begins_[at], .end = begins_[at + 1]};
    if (range.begin < 0 || range.end < range.begin || range.end > graph_.entries()) {
        fail(node, "row_begin goes from " + std::to_string(range.begin) + " to " +
                       std::to_string(range.end) + "; it must ascend from 0 to " +
                       std::to_string(graph_.entries()));
    }
    const int64_t degree = range.end - range.begin;
    if (degree >= graph_.nodes()) {
        fail(node, "has " + std::to_string(degree) + " neighbours; there are only " +
                       std::to_string(graph_.nodes() - 1) + " other samples");
    }
    if (degree > GraphFile::kMostNeighbours) {
        fail(node, "has " + std::to_string(degree) + " neighbours; at most 2^32 are possible");
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
        read_neighbours(range.begin);
        graph_.file_.read(*graph_.similarity_, range.begin, std::span(similarities_));
    }
    GraphRow row{.node = node, .begin = range.begin};
    if (degree > 0) {
        const auto offset = static_cast<size_t>(range.begin - first_entry_);
        row.neighbours = std::span<const int64_t>(neighbours_).subspan(offset, degree);
        row.similarities = std::span<const int32_t>(similarities_).subspan(offset, degree);
    }
    check(row);
    return row;
}

/// Fills neighbours_ from an entry on.
void GraphRows::read_neighbours(int64_t first) {
    std::vector<uint32_t> low(std::min(kConvertedAtOnce, neighbours_.size()));
    std::vector<uint8_t> high(graph_.neighbour_high_ != nullptr ? low.size() : 0);
    for (size_t done = 0; done < neighbours_.size(); done += low.size()) {
        low.resize(std::min(low.size(), neighbours_.size() - done));
        const auto at = first + static_cast<int64_t>(done);
        graph_.file_.read(*graph_.neighbour_, at, std::span(low));
        std::ranges::copy(low, neighbours_.begin() + static_cast<ptrdiff_t>(done));
        if (high.empty()) continue;
        high.resize(low.size());
        graph_.file_.read(*graph_.neighbour_high_, at, std::span(high));
        for (size_t i = 0; i < high.size(); ++i) neighbours_[done + i] |= int64_t{high[i]} << 32;
    }
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
                         int64_t entries, std::map<std::string, std::string> metadata,
                         int64_t most_narrow_nodes)
    : wide_(corpus.samples > most_narrow_nodes),
      file_(world, path, tensors_of(corpus.samples, entries, wide_),
            with_corpus(std::move(metadata), corpus, wide_)) {}

GraphOutput::GraphOutput(Communicator& world, const std::string& path, const Corpus& corpus,
                         const PartRows& rows, int64_t entries,
                         std::map<std::string, std::string> metadata)
    : wide_(corpus.samples > GraphFile::kMostNarrowNodes),
      file_(world, path, tensors_of(rows.last - rows.first, entries, wide_),
            with_first_row(with_corpus(std::move(metadata), corpus, wide_), rows.first)) {}

void GraphOutput::write_entries(int64_t first, std::span<const int64_t> neighbours,
                                std::span<const int32_t> similarities) {
    file_.write("similarity", first, similarities);
    std::vector<uint32_t> low;
    std::vector<uint8_t> high;
    for (size_t done = 0; done < neighbours.size(); done += low.size()) {
        const auto some =
            neighbours.subspan(done, std::min(kConvertedAtOnce, neighbours.size() - done));
        low.clear();
        for (const int64_t node : some) low.push_back(static_cast<uint32_t>(node));
        const int64_t at = first + static_cast<int64_t>(done);
        file_.write<uint32_t>("neighbour", at, low);
        if (!wide_) continue;
        high.clear();
        for (const int64_t node : some) high.push_back(static_cast<uint8_t>(node >> 32));
        file_.write<uint8_t>("neighbour_high", at, high);
    }
}

}  // namespace vocabpipe
