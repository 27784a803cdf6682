// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/sample_source.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace vocabpipe::testing {

/// Samples of random tokens with weights, each a document, whose lengths are these, in turn.
class SamplesOfLengths final : public SampleSource {
public:
    struct Options {
        std::vector<int64_t> lengths;
        int32_t ids = 0;
        int64_t seq_length = 0;  ///< of the longest, also where no sample is as long
        bool padded = false;     ///< all samples are padded to seq_length
    };
    explicit SamplesOfLengths(Options options) : options_(std::move(options)) {}

    [[nodiscard]] int64_t seq_length() const override { return options_.seq_length; }
    [[nodiscard]] int64_t length(int64_t index) const override {
        return options_.padded ? options_.seq_length : text_length(index);
    }
    [[nodiscard]] int64_t samples_per_epoch() const override { return 1000; }
    [[nodiscard]] SampleForm form() const override { return {.weighs_labels = true}; }

    /// Tokens of sample `index` without padding.
    [[nodiscard]] int64_t text_length(int64_t index) const {
        return options_.lengths[static_cast<size_t>(index) % options_.lengths.size()];
    }

private:
    void fill(int64_t index, Sample& out) const override {
        std::mt19937 random(static_cast<uint32_t>(index));
        const auto ids = static_cast<uint32_t>(options_.ids);
        const auto length = static_cast<size_t>(text_length(index));
        for (size_t i = 0; i < length; ++i) out.tokens[i] = static_cast<int32_t>(random() % ids);
        std::copy_n(out.tokens.begin() + 1, length - 1, out.labels.begin());
        out.labels[length - 1] = static_cast<int32_t>(random() % ids);
        for (size_t i = 0; i < length; ++i) {
            out.loss_weights[i] = 0.25F * static_cast<float>(random() % 5);
        }
    }

    Options options_;
};

}  // namespace vocabpipe::testing
