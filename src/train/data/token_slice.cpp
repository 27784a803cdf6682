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

void TokenSlice::require_range(const char* call, int64_t first, size_t count) const {
    if (first >= 0 && first <= size_ && std::cmp_less_equal(count, size_ - first)) return;
    throw std::out_of_range(std::string("TokenSlice::") + call + ": " + std::to_string(count) +
                            " tokens from " + std::to_string(first) + " on of " +
                            std::to_string(size_));
}

void TokenSlice::read(int64_t first, std::span<int32_t> out) const {
    require_range("read", first, out.size());
    whole_->read(begin_ + first, out);
}

void TokenSlice::read_loss_weights(int64_t first, std::span<float> out) const {
    require_range("read_loss_weights", first, out.size());
    whole_->read_loss_weights(begin_ + first, out);
}

void TokenSlice::read_document_starts(int64_t first, std::span<int64_t> out) const {
    if (info_.documents < 0) return TokenSource::read_document_starts(first, out);
    if (first < 0 || std::cmp_greater(out.size(), info_.documents + 1 - first)) {
        throw std::out_of_range("TokenSlice: " + std::to_string(out.size()) + " documents from " +
                                std::to_string(first) + " on of " +
                                std::to_string(info_.documents));
    }
    whole_->read_document_starts(first_document_ + first, out);
    for (int64_t& start : out) start -= begin_;
}

TokenPlace TokenSlice::place(int64_t index) const {
    if (index < 0 || index >= size_) {
        throw std::out_of_range("TokenSlice::place: token " + std::to_string(index) + " of " +
                                std::to_string(size_));
    }
    return whole_->place(begin_ + index);
}

}  // namespace vocabpipe
