// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/token_dataset.hpp"

#include <stdexcept>
#include <string>
#include <utility>

#include "src/train/data/read_labelled.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

int64_t count_samples(const TokenSource& source, int64_t seq_length) {
    if (seq_length < 1) {
        throw UsageError("--seq-length " + std::to_string(seq_length) + ": must be at least 1");
    }
    if (source.size() <= seq_length) {
        throw InputFileError(source.info().name + ": has " + std::to_string(source.size()) +
                             " tokens, but one sample of --seq-length " +
                             std::to_string(seq_length) + " needs " +
                             std::to_string(static_cast<uint64_t>(seq_length) + 1) +
                             "; use more data or a shorter --seq-length");
    }
    return (source.size() - 1) / seq_length;
}

}  // namespace

TokenDataset::TokenDataset(std::shared_ptr<const TokenSource> source,
                           const TokenDatasetOptions& options)
    : source_(std::move(source)),
      options_(options),
      samples_(count_samples(*source_, options.seq_length)),
      order_(samples_, options.seed, options.shuffle) {}

SampleForm TokenDataset::form() const {
    const DocumentMasks& masks = options_.masks;
    return {.weighs_labels = masks.ignore_next || !source_->info().loss_weights.empty(),
            .separates_documents = masks.separate,
            .resets_positions = masks.separate && masks.reset_positions};
}

void TokenDataset::fill(int64_t index, Sample& out) const {
    if (std::cmp_not_equal(out.tokens.size(), options_.seq_length)) {
        throw std::invalid_argument("TokenDataset::sample: needs a sample of seq_length tokens");
    }
    const DocumentMasks& masks = options_.masks;
    read_labelled(*source_, order_(index) * options_.seq_length, options_.vocab_size,
                  {out.tokens, out.labels, out.loss_weights});
    if (masks.ignore_next) ignore_after_ends(out.tokens, masks.end_of_document, out.labels);
    if (masks.separate) {
        find_document_starts(out.tokens, masks.end_of_document, out.first_visible);
    }
}

}  // namespace vocabpipe
