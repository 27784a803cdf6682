// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/token_slice.hpp"

#include <stdexcept>
#include <utility>

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
    if (first < 0 || first > size_ || std::cmp_greater(out.size(), size_ - first)) {
        throw std::out_of_range("TokenSlice::read: " + std::to_string(out.size()) +
                                " tokens from " + std::to_string(first) + " on of " +
                                std::to_string(size_));
    }
    whole_->read(begin_ + first, out);
}

int64_t TokenSlice::document_start(int64_t document) const {
    if (document < 0 || document > info_.documents) return TokenSource::document_start(document);
    return whole_->document_start(first_document_ + document) - begin_;
}

TokenPlace TokenSlice::place(int64_t index) const {
    if (index < 0 || index >= size_) {
        throw std::out_of_range("TokenSlice::place: token " + std::to_string(index) + " of " +
                                std::to_string(size_));
    }
    return whole_->place(begin_ + index);
}

}  // namespace vocabpipe
