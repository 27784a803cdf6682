// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/train/data/blend_order.hpp"
#include "vocabpipe/sample_source.hpp"

namespace vocabpipe {

/// Samples of several sources, in the proportions and order of BlendOrder. Each source has its own
/// epochs.
class BlendedSamples final : public SampleSource {
public:
    struct Part {
        double weight = 1;
        std::unique_ptr<const SampleSource> samples;
    };
    /// Weights as BlendOrder has them; sources of one seq_length().
    explicit BlendedSamples(std::vector<Part> parts);

    [[nodiscard]] int64_t seq_length() const override { return parts_.front()->seq_length(); }
    [[nodiscard]] int64_t length(int64_t index) const override;
    /// Sum over the sources.
    [[nodiscard]] int64_t samples_per_epoch() const override;
    [[nodiscard]] int64_t stream_number(int64_t index) const override;
    /// What the samples of any source have.
    [[nodiscard]] SampleForm form() const override;
    [[nodiscard]] std::vector<std::string> packing() const override;

private:
    void fill(int64_t index, Sample& out) const override;

    BlendOrder order_;
    std::vector<std::unique_ptr<const SampleSource>> parts_;
};

}  // namespace vocabpipe
