// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/token_slice.hpp"

#include <stdexcept>
#include <utility>

#include "src/train/data/check_range.hpp"

namespace vocabpipe {

TokenSlice::TokenSlice(std::shared_ptr<const TokenSource> whole, int64_t begin, int64_t end,
                       const std::string& part, int64_t documents, int64_t first_document)
    : whole_(std::move(whole)),
      begin_(begin),
      size_(end - begin),
      first_document_(first_document),
      info_(whole_->info()) {
    if (begin < 0 || begin > end || end > whole_->size()) {
        throw std::out_of_range("TokenSlice: " + std::to_string(begin) + " to " +
                                std::to_string(end) + " of " + std::to_string(whole_->size()));
    }
    info_.name += ", " + part + " part";
    info_.documents = documents;
    info_.sequences = -1;
}

void TokenSlice::read(int64_t first, std::span<int32_t> out) const {
    check_range("TokenSlice::read: tokens", first, out.size(), size_);
    whole_->read(begin_ + first, out);
}

void TokenSlice::read_loss_weights(int64_t first, std::span<float> out) const {
    check_range("TokenSlice::read_loss_weights: tokens", first, out.size(), size_);
    whole_->read_loss_weights(begin_ + first, out);
}

void TokenSlice::read_document_starts(int64_t first, std::span<int64_t> out) const {
    if (info_.documents < 0) return TokenSource::read_document_starts(first, out);
    check_range("TokenSlice::read_document_starts: documents", first, out.size(),
                info_.documents + 1);
    whole_->read_document_starts(first_document_ + first, out);
    for (int64_t& start : out) start -= begin_;
}

TokenPlace TokenSlice::place(int64_t index) const {
    check_range("TokenSlice::place: tokens", index, 1, size_);
    return whole_->place(begin_ + index);
}

}  // namespace vocabpipe
