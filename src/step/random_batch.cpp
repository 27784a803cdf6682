// SPDX-License-Identifier: Apache-2.0
#include "src/step/random_batch.hpp"

#include <algorithm>
#include <cstddef>
#include <random>

namespace vocabpipe {

RandomBatch::RandomBatch(const ModelConfig& model, int64_t sequences, int microbatches,
                         uint64_t seed) {
    const auto length = static_cast<size_t>(sequences * model.seq_length);
    const size_t total = length * static_cast<size_t>(microbatches);
    std::mt19937_64 random(seed);
    std::uniform_int_distribution<int32_t> id(0, static_cast<int32_t>(model.vocab_size) - 1);
    const auto predicted = static_cast<size_t>(model.predicted_tokens());
    counted_tokens_ = static_cast<int64_t>(total);
    tokens_.resize(total + predicted);
    std::generate(tokens_.begin(), tokens_.end(), [&] { return id(random); });
    loss_gradient_.assign(length, 1.0F / static_cast<float>(total));
    loss_gradient_.resize(length * predicted, loss_gradient_.front() * model.mtp_loss_weight());
    for (size_t at = 0; at < total; at += length) {
        for (size_t k = 1; k <= predicted; ++k) {
            const auto first = tokens_.begin() + static_cast<std::ptrdiff_t>(at + k);
            labels_.insert(labels_.end(), first, first + static_cast<std::ptrdiff_t>(length));
        }
    }
    for (int j = 0; j < microbatches; ++j) {
        const size_t at = static_cast<size_t>(j) * length;
        microbatches_.push_back(
            {.index = j,
             .sequences = sequences,
             .seq_length = model.seq_length,
             .tokens = std::span(tokens_).subspan(at, length),
             .labels = std::span(labels_).subspan(at * predicted, length * predicted),
             .loss_gradient = loss_gradient_});
    }
}

}  // namespace vocabpipe
