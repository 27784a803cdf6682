// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "vocabpipe/sample_order.hpp"
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
    int64_t samples = 0;    ///< sequences of seq_length rows
    int64_t seq_length = 0;

    /// Rows of the samples that no document has, as a share of all.
    [[nodiscard]] double padding() const {
        return samples == 0
                   ? 0
                   : 1 - static_cast<double>(rows) / static_cast<double>(samples * seq_length);
    }
    /// "1234 documents in 56 sequences of 512 tokens, 0.31 % padding"
    [[nodiscard]] std::string text() const;
};

/// Training samples that whole documents are packed into, by best_fit(). A document of n tokens
/// takes n - 1 rows: each token but the last, with the next one as its label, so that no label is
/// lost and no document is learnt from another. From a longer document, fragments of seq_length
/// rows are cut, a sample each; the rest is packed like a document. Every document and every
/// fragment sees only itself, and its positions begin at 0. The rows behind the last document of a
/// sample are tokens 0 without labels, which see only each other.
///
/// Takes 12 bytes per document and 8 per sample.
class PackedSamples final : public SampleSource {
public:
    /// `options.masks.end_of_document` is where documents end if the format has no list of them;
    /// the other masks are not used. InputFileError if no document has two tokens, UsageError if
    /// seq_length is less than 1 or more than 2^31 - 2.
    PackedSamples(std::shared_ptr<const TokenSource> source, const TokenDatasetOptions& options);

    [[nodiscard]] int64_t seq_length() const override { return options_.seq_length; }
    [[nodiscard]] int64_t samples_per_epoch() const override { return totals_.samples; }
    [[nodiscard]] SampleForm form() const override {
        return {.weighs_labels = true, .separates_documents = true, .resets_positions = true};
    }
    /// Totals and a checksum of what every sample holds.
    [[nodiscard]] std::vector<std::string> packing() const override;

    [[nodiscard]] const PackingTotals& totals() const { return totals_; }

private:
    void fill(int64_t index, Sample& out) const override;
    /// Cuts and packs the documents.
    void pack();

    std::shared_ptr<const TokenSource> source_;
    TokenDatasetOptions options_;
    PackingTotals totals_;
    // By fragment of a document, in the order of the samples.
    std::vector<int64_t> first_;  ///< token
    std::vector<int32_t> rows_;
    std::vector<int64_t> first_fragment_;  ///< of every sample, and the number of fragments
    SampleOrder order_;
};

}  // namespace vocabpipe
