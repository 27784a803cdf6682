// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/token_dataset.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

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

void TokenDataset::fail(int64_t token, int32_t value) const {
    const TokenPlace place = source_->place(token);
    throw InputFileError(
        place.file + ": token " + std::to_string(place.position) + " is " + std::to_string(value) +
        " now, but --vocab-size " + std::to_string(options_.vocab_size) + " allows only 0 to " +
        std::to_string(options_.vocab_size - 1) +
        "; the file was overwritten after it was checked; do not change it until the run ends");
}

void TokenDataset::sample(int64_t index, std::span<int32_t> tokens_and_next) const {
    if (std::cmp_not_equal(tokens_and_next.size(), options_.seq_length + 1)) {
        throw std::invalid_argument("TokenDataset::sample: needs seq_length + 1 elements");
    }
    const int64_t first = order_(index) * options_.seq_length;
    source_->read(first, tokens_and_next);
    if (options_.vocab_size == 0) return;
    const auto bad = std::ranges::find_if(
        tokens_and_next, [&](int32_t id) { return id < 0 || id >= options_.vocab_size; });
    if (bad != tokens_and_next.end()) fail(first + (bad - tokens_and_next.begin()), *bad);
}

}  // namespace vocabpipe
