// SPDX-License-Identifier: Apache-2.0
#include "src/step/random_batch.hpp"

#include <algorithm>
#include <random>

namespace vocabpipe {

RandomBatch::RandomBatch(const ModelConfig& model, int64_t sequences, int microbatches,
                         uint64_t seed) {
    const auto length = static_cast<size_t>(sequences * model.seq_length);
    const size_t total = length * static_cast<size_t>(microbatches);
    std::mt19937_64 random(seed);
    std::uniform_int_distribution<int32_t> id(0, static_cast<int32_t>(model.vocab_size) - 1);
    tokens_.resize(total + 1);
    std::generate(tokens_.begin(), tokens_.end(), [&] { return id(random); });
    loss_gradient_.assign(length, 1.0F / static_cast<float>(total));
    for (int j = 0; j < microbatches; ++j) {
        const size_t at = static_cast<size_t>(j) * length;
        microbatches_.push_back({.index = j,
                                 .sequences = sequences,
                                 .seq_length = model.seq_length,
                                 .tokens = std::span(tokens_).subspan(at, length),
                                 .labels = std::span(tokens_).subspan(at + 1, length),
                                 .loss_gradient = loss_gradient_});
    }
}

}  // namespace vocabpipe
