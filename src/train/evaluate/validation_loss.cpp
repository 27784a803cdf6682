// SPDX-License-Identifier: Apache-2.0
#include "src/train/evaluate/validation_loss.hpp"

#include <algorithm>
#include <cmath>

namespace vocabpipe {

double ValidationLoss::perplexity() const {
    return std::exp(loss);
}

FillSequence samples_to_evaluate(const SampleSource& source) {
    return [&source](int64_t i, Sample& to) { source.sample(i, to); };
}

ValidationLoss validation_loss(SequenceLosses& losses, const SampleSource& source,
                               int64_t samples) {
    const FillSequence fill = samples_to_evaluate(source);
    ValidationLoss all;
    double sum = 0, weight = 0;
    for (const SequenceLoss& one : losses.of(std::min(samples, source.samples_per_epoch()), fill)) {
        sum += one.sum;
        weight += one.weight;
        all.tokens += one.tokens;
    }
    all.loss = sum / weight;
    return all;
}

}  // namespace vocabpipe
