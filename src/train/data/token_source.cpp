// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/token_source.hpp"

#include <algorithm>
#include <stdexcept>

namespace vocabpipe {

void TokenSource::read_loss_weights(int64_t /*first*/, std::span<float> out) const {
    std::ranges::fill(out, 1.0F);
}

void TokenSource::read_document_starts(int64_t /*first*/, std::span<int64_t> /*out*/) const {
    throw std::logic_error(info().name + ": has no list of documents");
}

}  // namespace vocabpipe
