// SPDX-License-Identifier: Apache-2.0
#include "src/train/evaluate/validation_loss.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace vocabpipe {

double ValidationLoss::perplexity() const {
    return std::exp(loss);
}

FillSequence samples_to_evaluate(const SampleSource& source, const DocumentMasks& masks) {
    return [&source, masks,
            sample = std::vector<int32_t>(static_cast<size_t>(source.seq_length()) + 1)](
               int64_t i, const SequenceRow& row) mutable {
        source.sample(i, sample);
        std::copy(sample.begin(), sample.end() - 1, row.tokens.begin());
        std::copy(sample.begin() + 1, sample.end(), row.labels.begin());
        if (masks.ignore_next) ignore_after_ends(row.tokens, masks.end_of_document, row.labels);
        if (masks.separate) {
            find_document_starts(row.tokens, masks.end_of_document, row.first_visible);
        }
    };
}

ValidationLoss validation_loss(SequenceLosses& losses, const SampleSource& source,
                               const DocumentMasks& masks, int64_t samples) {
    const FillSequence fill = samples_to_evaluate(source, masks);
    ValidationLoss all;
    double sum = 0;
    for (const SequenceLoss& one : losses.of(std::min(samples, source.samples_per_epoch()), fill)) {
        sum += one.sum;
        all.tokens += one.tokens;
    }
    all.loss = sum / static_cast<double>(all.tokens);
    return all;
}

}  // namespace vocabpipe
