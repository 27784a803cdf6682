// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "src/train/data/sample_choice.hpp"
#include "vocabpipe/sample_order.hpp"
#include "vocabpipe/sample_source.hpp"

namespace vocabpipe {

/// The chosen samples of one data set, each once per epoch: SampleOrder draws a position, and the
/// choice maps it to a sample. Takes no memory besides the choice.
class SubsetSamples final : public SampleSource {
public:
    struct Options {
        int64_t first_position = 0;  ///< position of the set's first chosen sample in the choice
        int64_t count = 0;           ///< chosen samples of the set, at least 1
        int64_t first_sample = 0;    ///< number of the set's first sample
        uint64_t seed = 1234;
        bool shuffle = true;
    };
    /// `all`: the set's samples in stream order.
    SubsetSamples(std::unique_ptr<const SampleSource> all,
                  std::shared_ptr<const SampleChoice> choice, const Options& options);

    [[nodiscard]] int64_t seq_length() const override { return all_->seq_length(); }
    [[nodiscard]] int64_t samples_per_epoch() const override { return options_.count; }
    [[nodiscard]] int64_t stream_number(int64_t index) const override { return order_(index); }
    [[nodiscard]] SampleForm form() const override { return all_->form(); }

private:
    void fill(int64_t index, Sample& out) const override;

    std::unique_ptr<const SampleSource> all_;
    std::shared_ptr<const SampleChoice> choice_;
    Options options_;
    SampleOrder order_;
};

}  // namespace vocabpipe
