// SPDX-License-Identifier: Apache-2.0
#include "src/train/validation_loss.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace vocabpipe {

double ValidationLoss::perplexity() const {
    return std::exp(loss);
}

ValidationLoss validation_loss(SequenceLosses& losses, const SampleSource& source,
                               int64_t samples) {
    std::vector<int32_t> sample(static_cast<size_t>(source.seq_length()) + 1);
    const auto fill = [&](int64_t i, std::span<int32_t> tokens, std::span<int32_t> labels) {
        source.sample(i, sample);
        std::copy(sample.begin(), sample.end() - 1, tokens.begin());
        std::copy(sample.begin() + 1, sample.end(), labels.begin());
    };
    ValidationLoss all;
    double sum = 0;
    for (const SequenceLoss& one : losses.of(std::min(samples, source.samples_per_epoch()), fill)) {
        sum += one.sum;
        all.tokens += one.tokens;
    }
    if (all.tokens > 0) all.loss = sum / static_cast<double>(all.tokens);
    return all;
}

}  // namespace vocabpipe
