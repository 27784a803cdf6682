// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/vocabulary_loss.hpp"

#include <cstddef>
#include <string>

#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels {

void check_labels(std::span<const int32_t> labels, const VocabularyShard& shard) {
    for (size_t n = 0; n < labels.size(); ++n) {
        if (labels[n] >= shard.vocab_size) {
            throw UsageError("label " + std::to_string(labels[n]) + " of token " +
                             std::to_string(n) + " is outside the vocabulary of " +
                             std::to_string(shard.vocab_size) +
                             " rows; a label must be below that number, or negative to be ignored");
        }
    }
}

}  // namespace vocabpipe::kernels
