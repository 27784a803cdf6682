// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/data/stratified_order.hpp"
#include "vocabpipe/sample_source.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace vocabpipe {

/// Samples that belong together by twos, such as two answers to one question: 2 i and 2 i + 1 of
/// the stream follow one another, and pairs are shuffled. With several lengths, StratifiedOrder
/// gives every step the pairs of two lengths in their shares; that takes 4 bytes per pair.
class PairedSamples final : public SampleSource {
public:
    /// `in_order`: every epoch in stream order; `several_lengths`: they may have other lengths than
    /// seq_length(). InputFileError if their number is odd.
    PairedSamples(std::unique_ptr<const SampleSource> in_order, uint64_t seed, bool shuffle,
                  bool several_lengths);

    [[nodiscard]] int64_t seq_length() const override { return samples_->seq_length(); }
    [[nodiscard]] int64_t length(int64_t index) const override {
        return samples_->length(stream_number(index));
    }
    [[nodiscard]] int64_t samples_per_epoch() const override {
        return samples_->samples_per_epoch();
    }
    [[nodiscard]] int64_t stream_number(int64_t index) const override {
        return 2 * pair_at(index / 2) + index % 2;
    }
    [[nodiscard]] SampleForm form() const override { return samples_->form(); }
    [[nodiscard]] std::vector<std::string> packing() const override { return samples_->packing(); }

private:
    void fill(int64_t index, Sample& out) const override {
        samples_->sample(stream_number(index), out);
    }
    /// The pair at a position of the order.
    [[nodiscard]] int64_t pair_at(int64_t position) const {
        const int64_t place = order_(position);
        return by_lengths_.empty() ? place : by_lengths_[static_cast<size_t>(place)];
    }

    std::unique_ptr<const SampleSource> samples_;
    /// Pairs, those of the same two lengths together; empty: in stream order.
    std::vector<uint32_t> by_lengths_;
    StratifiedOrder order_;
};

}  // namespace vocabpipe
