// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/train/data/stratified_order.hpp"
#include "vocabpipe/length_count.hpp"
#include "vocabpipe/sample_source.hpp"
#include "vocabpipe/token_dataset.hpp"
#include "vocabpipe/token_source.hpp"

namespace vocabpipe {

/// What packing did to a stream.
struct PackingTotals {
    int64_t documents = 0;  ///< packed, whole or cut
    int64_t cut = 0;        ///< of these, longer than a sample
    int64_t single = 0;     ///< left out: of less than two tokens, so that none has a label
    int64_t rows = 0;       ///< tokens with a label
    int64_t samples = 0;    ///< sequences of all lengths
    int64_t tokens = 0;     ///< of the samples, padding included
    std::vector<LengthCount> lengths;  ///< samples by their length, ascending

    /// Rows of the samples that no document has, as a share of all.
    [[nodiscard]] double padding() const {
        return samples == 0 ? 0 : 1 - static_cast<double>(rows) / static_cast<double>(tokens);
    }
    /// "1234 documents in 56 sequences of 512 tokens, 0.31 % padding"; with several lengths "in 44
    /// sequences of 512 tokens and 12 of 256".
    [[nodiscard]] std::string text() const;
};

/// How PackedSamples makes samples.
struct PackingOptions {
    /// Lengths that samples may have, ascending; the last is TokenDatasetOptions::seq_length.
    /// Empty: only that one.
    std::vector<int64_t> lengths = {};
    bool one_each = false;  ///< a sample for each document or fragment, in place of best_fit()
    /// InputFileError for a document that is not one sample, too long or without a label: its
    /// neighbours would be others.
    bool whole = false;
};

/// Training samples that whole documents are packed into, by best_fit(). A document of n tokens
/// takes n - 1 rows: each token but the last, with the next one as its label, so that no label is
/// lost and no document is learnt from another. From a longer document, fragments of seq_length
/// rows are cut, a sample each; the rest is packed like a document. Every document and every
/// fragment sees only itself, and its positions begin at 0. The rows behind the last document of a
/// sample are tokens 0 without labels, which see only each other.
///
/// With several lengths, a sample has the smallest that holds its largest document, and smaller
/// documents fill it up. StratifiedOrder gives every step the lengths in their shares.
///
/// Takes 12 bytes per document and 8 per sample, with several lengths 12.
class PackedSamples final : public SampleSource {
public:
    /// `options.masks.end_of_document` is where documents end if the format has no list of them;
    /// the other masks are not used. InputFileError if no document has two tokens, UsageError if
    /// seq_length is less than 1 or more than 2^31 - 2.
    PackedSamples(std::shared_ptr<const TokenSource> source, const TokenDatasetOptions& options,
                  PackingOptions packing = {});

    [[nodiscard]] int64_t seq_length() const override { return options_.seq_length; }
    [[nodiscard]] int64_t length(int64_t index) const override {
        return packing_.lengths.size() == 1 ? options_.seq_length : length_of(sample_at(index));
    }
    [[nodiscard]] int64_t samples_per_epoch() const override { return totals_.samples; }
    [[nodiscard]] int64_t stream_number(int64_t index) const override {
        return static_cast<int64_t>(sample_at(index));
    }
    /// One document alone needs no mask: no token of it sees the padding behind it.
    [[nodiscard]] SampleForm form() const override {
        return {.weighs_labels = true,
                .separates_documents = !packing_.one_each,
                .resets_positions = !packing_.one_each};
    }
    /// Totals and a checksum of what every sample holds.
    [[nodiscard]] std::vector<std::string> packing() const override;

    [[nodiscard]] const PackingTotals& totals() const { return totals_; }

private:
    void fill(int64_t index, Sample& out) const override;
    /// Cuts and packs the documents.
    void pack();
    /// Sets the order of the samples, and counts them by length.
    void order_samples();
    /// The sample at a position of the order.
    [[nodiscard]] size_t sample_at(int64_t index) const;
    /// The smallest length that holds its rows.
    [[nodiscard]] int64_t length_of(size_t sample) const;

    std::shared_ptr<const TokenSource> source_;
    TokenDatasetOptions options_;
    PackingOptions packing_;
    PackingTotals totals_;
    // By fragment of a document, in the order of the samples.
    std::vector<int64_t> first_;  ///< token
    std::vector<int32_t> rows_;
    std::vector<int64_t> first_fragment_;  ///< of every sample, and the number of fragments
    std::vector<uint32_t> by_length_;  ///< samples, those of one length together; empty: one length
    StratifiedOrder order_;
};

}  // namespace vocabpipe
