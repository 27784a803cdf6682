// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/megatron_writer.hpp"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
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

}  // namespace

MegatronWriter::MegatronWriter(const std::string& prefix, int64_t vocab_size,
                               std::optional<LossWeightType> loss_weights)
    : vocab_size_(checked_vocabulary(vocab_size)),
      weights_path_(loss_weights::path_beside(prefix)),
      bin_(prefix + ".bin"),
      idx_(prefix + ".idx"),
      boundaries_{0} {
    if (loss_weights) weights_.emplace(weights_path_, *loss_weights);
    totals_.type = vocab_size < megatron::kFirstVocabularyOfI32 ? TokenType::u16 : TokenType::i32;
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
        const auto room = static_cast<size_t>(std::numeric_limits<int32_t>::max() - open_);
        const auto part = tokens.first(std::min(tokens.size(), room));
        if (totals_.type == TokenType::u16) {
            narrow_.assign(part.begin(), part.end());
            bin_.write(std::as_bytes(std::span(narrow_)));
        } else {
            bin_.write(std::as_bytes(part));
        }
        open_ += static_cast<int32_t>(part.size());
        totals_.tokens += static_cast<int64_t>(part.size());
        tokens = tokens.subspan(part.size());
        if (open_ == std::numeric_limits<int32_t>::max()) {
            end_sequence();
        }
    }
}

void MegatronWriter::end_sequence() {
    lengths_.push_back(open_);
    open_ = 0;
}

void MegatronWriter::end_document() {
    if (open_ > 0) {
        end_sequence();
    }
    boundaries_.push_back(static_cast<int64_t>(lengths_.size()));
    ++totals_.documents;
}

void MegatronWriter::write(const void* data, size_t bytes) {
    idx_.write({static_cast<const std::byte*>(data), bytes});
}

void MegatronWriter::write_index() {
    const uint64_t version = megatron::kVersion;
    const auto type = static_cast<uint8_t>(totals_.type);
    const uint64_t sequences = lengths_.size();
    const uint64_t boundaries = boundaries_.size();
    write(megatron::kMagic.data(), megatron::kMagic.size());
    write(&version, sizeof version);
    write(&type, sizeof type);
    write(&sequences, sizeof sequences);
    write(&boundaries, sizeof boundaries);
    idx_.write(std::as_bytes(std::span(lengths_)));
    int64_t offset = 0;
    for (const int32_t length : lengths_) {
        write(&offset, sizeof offset);
        offset += length * token_bytes(totals_.type);
    }
    idx_.write(std::as_bytes(std::span(boundaries_)));
}

MegatronTotals MegatronWriter::finish() {
    if (open_ > 0 || std::cmp_greater(lengths_.size(), boundaries_.back())) {
        end_document();
    }
    write_index();
    bin_.sync();
    idx_.sync();
    if (weights_) weights_->finish();
    // An older index or older weights must not lie next to the new tokens, not even for a moment.
    ::unlink(idx_.path().c_str());
    remove_loss_weights(weights_path_);
    bin_.publish();
    try {
        if (weights_) weights_->publish();
        idx_.publish();
    } catch (...) {
        ::unlink(bin_.path().c_str());
        remove_loss_weights(weights_path_);
        throw;
    }
    sync_folder_of(bin_.path());
    totals_.bytes = bin_.size() + idx_.size() + (weights_ ? weights_->bytes() : 0);
    return totals_;
}

}  // namespace vocabpipe
