// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/train/graph_models.hpp"
#include "vocabpipe/modules.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace vocabpipe::testing {

inline constexpr int kGraphMicrobatches = 4;

/// Random data of a step, with some labels that do not count.
class GraphBatch {
public:
    GraphBatch(const ModelConfig& config, uint64_t seed) {
        std::mt19937_64 random(seed);
        const int64_t n = kGraphSequences * config.seq_length;
        const auto in = [&](int64_t count) { return static_cast<int32_t>(random() % count); };
        const auto size = static_cast<size_t>(n * kGraphMicrobatches);
        for (size_t i = 0; i < size; ++i) {
            tokens_.push_back(in(config.vocab_size));
            // Labels of two_towers, whose classes are the sequences of a microbatch.
            labels_.push_back(in(5) == 0 ? -1 : in(kGraphSequences));
            weights_.push_back(labels_.back() < 0 ? 0.0F : 1.0F / static_cast<float>(size));
        }
        for (size_t i = 0; i < size * kGraphColumns; ++i) {
            columns_.push_back(static_cast<float>(random() % 1000) / 500 - 1);
        }
        for (int j = 0; j < kGraphMicrobatches; ++j) {
            const auto first = static_cast<size_t>(n * j), count = static_cast<size_t>(n);
            microbatches_.push_back({.index = j,
                                     .sequences = kGraphSequences,
                                     .seq_length = config.seq_length,
                                     .tokens = std::span(tokens_).subspan(first, count),
                                     .labels = std::span(labels_).subspan(first, count),
                                     .loss_gradient = std::span(weights_).subspan(first, count),
                                     .columns = std::span(columns_).subspan(
                                         first * kGraphColumns, count * kGraphColumns)});
        }
    }
    [[nodiscard]] std::span<const Microbatch> microbatches() const { return microbatches_; }
    [[nodiscard]] int64_t counted() const {
        return std::ranges::count_if(labels_, [](int32_t label) { return label >= 0; });
    }

private:
    std::vector<int32_t> tokens_, labels_;
    std::vector<float> weights_, columns_;
    std::vector<Microbatch> microbatches_;
};

}  // namespace vocabpipe::testing
