// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "vocabpipe/sample_source.hpp"

namespace vocabpipe {

/// Several sources, one after the other: the samples of the second begin where an epoch of the
/// first ends.
class SamplesInSequence final : public SampleSource {
public:
    /// At least one, of one seq_length.
    explicit SamplesInSequence(std::vector<std::unique_ptr<const SampleSource>> parts)
        : parts_(std::move(parts)) {
        for (const auto& part : parts_) ends_.push_back(count() + part->samples_per_epoch());
    }

    [[nodiscard]] int64_t seq_length() const override { return parts_.front()->seq_length(); }
    [[nodiscard]] int64_t length(int64_t index) const override {
        const Place place = place_of(index);
        return place.samples->length(place.index);
    }
    [[nodiscard]] int64_t samples_per_epoch() const override { return count(); }
    /// What the samples of any source have.
    [[nodiscard]] SampleForm form() const override {
        SampleForm form;
        for (const auto& part : parts_) form = form | part->form();
        return form;
    }

private:
    struct Place {
        const SampleSource* samples;
        int64_t index;
    };
    [[nodiscard]] Place place_of(int64_t index) const {
        const int64_t in_epoch = index % count();
        const auto part = std::ranges::upper_bound(ends_, in_epoch) - ends_.begin();
        const auto& samples = parts_[static_cast<size_t>(part)];
        const int64_t begin = ends_[static_cast<size_t>(part)] - samples->samples_per_epoch();
        return {.samples = samples.get(), .index = in_epoch - begin};
    }
    void fill(int64_t index, Sample& out) const override {
        const Place place = place_of(index);
        place.samples->sample(place.index, out);
    }
    [[nodiscard]] int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }

    std::vector<std::unique_ptr<const SampleSource>> parts_;
    std::vector<int64_t> ends_;  ///< first sample behind each part
};

}  // namespace vocabpipe
