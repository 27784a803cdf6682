// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/document_masks.hpp"
#include "vocabpipe/sample_source.hpp"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace vocabpipe::testing {

/// Samples of random tokens, one of six of which ends a document.
class RandomDocuments final : public SampleSource {
public:
    struct Options {
        int64_t seq_length = 0;
        int32_t ids = 0;
        DocumentMasks masks = {};
        /// Most of the labels' weights, which are random multiples of 0.25, many of them 0; 0: none
        /// has a weight.
        int largest_weight = 0;
        int64_t samples = 1;
    };
    explicit RandomDocuments(const Options& options) : options_(options) {}

    [[nodiscard]] int64_t seq_length() const override { return options_.seq_length; }
    [[nodiscard]] int64_t samples_per_epoch() const override { return options_.samples; }
    [[nodiscard]] SampleForm form() const override {
        return {.weighs_labels = options_.masks.ignore_next || options_.largest_weight > 0,
                .separates_documents = options_.masks.separate,
                .resets_positions = options_.masks.reset_positions};
    }

private:
    void fill(int64_t index, Sample& out) const override {
        const DocumentMasks& masks = options_.masks;
        std::mt19937 random(static_cast<uint32_t>(index));
        const auto next = [&] {
            if (masks.end_of_document >= 0 && random() % 6 == 0) return masks.end_of_document;
            return static_cast<int32_t>(random() % static_cast<uint32_t>(options_.ids));
        };
        std::ranges::generate(out.tokens, next);
        std::copy(out.tokens.begin() + 1, out.tokens.end(), out.labels.begin());
        out.labels.back() = next();
        if (masks.ignore_next) ignore_after_ends(out.tokens, masks.end_of_document, out.labels);
        if (masks.separate) {
            find_document_starts(out.tokens, masks.end_of_document, out.first_visible);
        }
        if (options_.largest_weight == 0) return;
        // Whole microbatches weigh little, others much: a mean of means is far from the mean.
        const auto most = static_cast<uint32_t>(index % 3 == 0 ? 4 * options_.largest_weight : 2);
        for (float& weight : out.loss_weights) {
            weight = 0.25F * static_cast<float>(random() % 3 == 0 ? 0 : random() % (most + 1));
        }
    }

    Options options_;
};

}  // namespace vocabpipe::testing
