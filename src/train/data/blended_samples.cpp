// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/blended_samples.hpp"

#include <utility>

namespace vocabpipe {

namespace {

std::vector<double> weights_of(const std::vector<BlendedSamples::Part>& parts) {
    std::vector<double> weights;
    for (const auto& part : parts) weights.push_back(part.weight);
    return weights;
}

}  // namespace

BlendedSamples::BlendedSamples(std::vector<Part> parts) : order_(weights_of(parts)) {
    for (Part& part : parts) parts_.push_back(std::move(part.samples));
}

int64_t BlendedSamples::samples_per_epoch() const {
    int64_t samples = 0;
    for (const auto& part : parts_) samples += part->samples_per_epoch();
    return samples;
}

int64_t BlendedSamples::length(int64_t index) const {
    const BlendOrder::Place place = order_(index);
    return parts_[place.dataset]->length(place.sample);
}

int64_t BlendedSamples::stream_number(int64_t index) const {
    const BlendOrder::Place place = order_(index);
    int64_t before = 0;
    for (size_t i = 0; i < place.dataset; ++i) before += parts_[i]->samples_per_epoch();
    return before + parts_[place.dataset]->stream_number(place.sample);
}

SampleForm BlendedSamples::form() const {
    SampleForm form;
    for (const auto& part : parts_) form = form | part->form();
    return form;
}

std::vector<std::string> BlendedSamples::packing() const {
    std::vector<std::string> lines;
    for (const auto& part : parts_) {
        for (std::string& line : part->packing()) lines.push_back(std::move(line));
    }
    return lines;
}

void BlendedSamples::fill(int64_t index, Sample& out) const {
    const BlendOrder::Place place = order_(index);
    parts_[place.dataset]->sample(place.sample, out);
}

}  // namespace vocabpipe
