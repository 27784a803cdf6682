// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/megatron_writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "src/train/data/megatron_format.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

int64_t checked_vocabulary(int64_t vocab_size) {
    if (vocab_size < 1 || vocab_size > std::numeric_limits<int32_t>::max()) {
        throw UsageError("--vocab-size " + std::to_string(vocab_size) +
                         ": must be from 1 to 2147483647, the range of a token file");
    }
    return vocab_size;
}

TokenType type_for(int64_t vocab_size) {
    return checked_vocabulary(vocab_size) < megatron::kFirstVocabularyOfI32 ? TokenType::u16
                                                                            : TokenType::i32;
}

// Entries of PREFIX.idx.partial, i32: the length of a sequence, below zero (in two's complement,
// ~length) for the last sequence of a document, and kEmptyDocument for a document without any.
constexpr int32_t kEmptyDocument = std::numeric_limits<int32_t>::min();
constexpr int32_t kLongest =
    std::numeric_limits<int32_t>::max() - 1;  // ~kLongest is no kEmptyDocument

bool is_sequence(int32_t entry) {
    return entry != kEmptyDocument;
}
bool ends_document(int32_t entry) {
    return entry < 0;
}
int32_t length_of(int32_t entry) {
    return entry < 0 ? ~entry : entry;
}

int64_t file_bytes(const std::string& path) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(path, error);
    return error ? -1 : static_cast<int64_t>(bytes);
}

constexpr int64_t kEntryBytes = sizeof(int32_t);

template <class T>
void write_value(OutputFile& file, const T& value) {
    file.write(std::as_bytes(std::span(&value, 1)));
}

}  // namespace

MegatronWriter::MegatronWriter(const std::string& prefix, int64_t vocab_size,
                               std::optional<LossWeightType> loss_weights,
                               const MegatronPosition& from)
    : vocab_size_(vocab_size),
      type_(type_for(vocab_size)),
      position_(from),
      weights_path_(loss_weights::path_beside(prefix)),
      bin_(prefix + ".bin", from.bytes),
      entries_(std::in_place, prefix + ".idx", from.entries * kEntryBytes) {
    if (loss_weights) {
        weights_.emplace(weights_path_, *loss_weights, from.weights);
    } else {
        // What a killed preparation of another kind may have left.
        ::unlink(PartialFile::name_of(weights_path_).c_str());
    }
}

bool MegatronWriter::can_go_on(const std::string& prefix, const MegatronPosition& from) {
    const auto holds = [&](const std::string& path, int64_t bytes) {
        return bytes == 0 || file_bytes(PartialFile::name_of(path)) >= bytes;
    };
    return holds(prefix + ".bin", from.bytes) &&
           holds(prefix + ".idx", from.entries * kEntryBytes) &&
           holds(loss_weights::path_beside(prefix), from.weights.bytes);
}

void MegatronWriter::append(std::span<const int32_t> tokens) {
    append_tokens(tokens);
    if (!weights_) return;
    ones_.assign(tokens.size(), 1.0F);
    weights_->append(ones_);
}

void MegatronWriter::append(std::span<const int32_t> tokens, std::span<const float> loss_weights) {
    if (!weights_) throw std::logic_error("MegatronWriter: made without loss weights");
    if (tokens.size() != loss_weights.size()) {
        throw std::invalid_argument("MegatronWriter::append: needs a loss weight for each token");
    }
    append_tokens(tokens);
    weights_->append(loss_weights);
}

void MegatronWriter::append_tokens(std::span<const int32_t> tokens) {
    for (const int32_t id : tokens) {
        if (id < 0 || id >= vocab_size_) {
            throw std::invalid_argument("MegatronWriter::append: token " + std::to_string(id) +
                                        " in a vocabulary of " + std::to_string(vocab_size_));
        }
    }
    while (!tokens.empty()) {
        // A length is an i32; a longer document becomes several sequences.
        const auto room = static_cast<size_t>(kLongest - position_.open);
        const auto part = tokens.first(std::min(tokens.size(), room));
        if (type_ == TokenType::u16) {
            narrow_.assign(part.begin(), part.end());
            bin_.write(std::as_bytes(std::span(narrow_)));
        } else {
            bin_.write(std::as_bytes(part));
        }
        position_.open += static_cast<int64_t>(part.size());
        position_.tokens += static_cast<int64_t>(part.size());
        tokens = tokens.subspan(part.size());
        if (!tokens.empty()) end_sequence(false);
    }
}

void MegatronWriter::add_entry(int32_t entry) {
    entries_->write(std::as_bytes(std::span(&entry, 1)));
    ++position_.entries;
}

void MegatronWriter::end_sequence(bool ends_document) {
    const auto length = static_cast<int32_t>(position_.open);
    add_entry(ends_document ? ~length : length);
    position_.open = 0;
}

void MegatronWriter::end_document() {
    if (position_.open > 0) {
        end_sequence(true);
    } else {
        add_entry(kEmptyDocument);
    }
    ++position_.documents;
}

MegatronPosition MegatronWriter::sync() {
    bin_.sync();
    entries_->sync();
    position_.bytes = bin_.size();
    if (weights_) position_.weights = weights_->sync();
    return position_;
}

template <class Visit>
void MegatronWriter::for_each_entry(const Visit& visit) {
    constexpr int64_t kBlock = 1 << 16;
    std::vector<int32_t> block;
    for (int64_t first = 0; first < position_.entries; first += kBlock) {
        block.resize(static_cast<size_t>(std::min(kBlock, position_.entries - first)));
        entries_->read(first * kEntryBytes, std::as_writable_bytes(std::span(block)));
        for (const int32_t entry : block) visit(entry);
    }
}

void MegatronWriter::write_index(OutputFile& idx) {
    uint64_t sequences = 0;
    for_each_entry([&](int32_t entry) { sequences += is_sequence(entry) ? 1 : 0; });
    const auto boundaries = static_cast<uint64_t>(position_.documents) + 1;
    idx.write(std::as_bytes(std::span(megatron::kMagic)));
    write_value(idx, megatron::kVersion);
    write_value(idx, static_cast<uint8_t>(type_));
    write_value(idx, sequences);
    write_value(idx, boundaries);
    for_each_entry([&](int32_t entry) {
        if (is_sequence(entry)) write_value(idx, length_of(entry));
    });
    int64_t offset = 0;
    for_each_entry([&](int32_t entry) {
        if (!is_sequence(entry)) return;
        write_value(idx, offset);
        offset += length_of(entry) * token_bytes(type_);
    });
    int64_t boundary = 0;
    write_value(idx, boundary);
    for_each_entry([&](int32_t entry) {
        boundary += is_sequence(entry) ? 1 : 0;
        if (ends_document(entry)) write_value(idx, boundary);
    });
}

MegatronTotals MegatronWriter::finish() {
    if (position_.open > 0) end_document();
    OutputFile idx(entries_->path());
    write_index(idx);
    bin_.sync();
    idx.sync();
    if (weights_) weights_->finish();
    // An older index or older weights must not lie next to the new tokens, not even for a moment.
    ::unlink(idx.path().c_str());
    remove_loss_weights(weights_path_);
    bin_.publish();
    try {
        if (weights_) weights_->publish();
        idx.publish();
    } catch (...) {
        ::unlink(bin_.path().c_str());
        remove_loss_weights(weights_path_);
        throw;
    }
    entries_.reset();  // another writer may begin
    sync_folder_of(bin_.path());
    return {.documents = position_.documents,
            .tokens = position_.tokens,
            .bytes = bin_.size() + idx.size() + (weights_ ? weights_->bytes() : 0),
            .type = type_};
}

}  // namespace vocabpipe
