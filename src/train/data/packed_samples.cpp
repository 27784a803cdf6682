// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/packed_samples.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>

#include "src/support/crc32c.hpp"
#include "src/support/text_layout.hpp"
#include "src/train/data/best_fit.hpp"
#include "src/train/data/document_starts.hpp"
#include "src/train/data/read_labelled.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

std::string PackingTotals::text() const {
    char share[32];
    std::snprintf(share, sizeof share, "%.2f %% padding", 100 * padding());
    std::string text = counted(documents, "document") + " in " + counted(samples, "sequence") +
                       " of " + counted(seq_length, "token") + ", " + share;
    if (cut > 0) text += "; " + counted(cut, "longer document") + " cut";
    if (single > 0) text += "; " + counted(single, "document") + " without a label left out";
    return text;
}

PackedSamples::PackedSamples(std::shared_ptr<const TokenSource> source,
                             const TokenDatasetOptions& options)
    : source_(std::move(source)), options_(options), order_(1, 0) {
    const int64_t longest = std::numeric_limits<int32_t>::max() - 1;
    if (options.seq_length < 1 || options.seq_length > longest) {
        throw UsageError("--seq-length " + std::to_string(options.seq_length) +
                         ": must be from 1 to " + std::to_string(longest) +
                         " with --packing-strategy bfd");
    }
    pack();
    if (totals_.samples == 0) {
        throw InputFileError(source_->info().name + ": " + std::to_string(totals_.single) +
                             " documents, none of at least two tokens, so that nothing can be "
                             "learnt; use more data, or --packing-strategy wrapped");
    }
    order_ = SampleOrder(totals_.samples, options.seed, options.shuffle);
}

void PackedSamples::pack() {
    const int64_t length = options_.seq_length;
    const std::vector<int64_t> starts = document_starts(*source_, options_.masks.end_of_document);
    std::vector<int64_t> first;
    std::vector<int32_t> rows;
    totals_.seq_length = length;
    for (size_t d = 0; d + 1 < starts.size(); ++d) {
        const int64_t of_document = starts[d + 1] - starts[d] - 1;
        if (of_document < 1) {
            ++totals_.single;
            continue;
        }
        ++totals_.documents;
        totals_.cut += of_document > length ? 1 : 0;
        totals_.rows += of_document;
        for (int64_t row = 0; row < of_document; row += length) {
            first.push_back(starts[d] + row);
            rows.push_back(static_cast<int32_t>(std::min(length, of_document - row)));
        }
    }
    Bins bins = best_fit(rows, static_cast<int32_t>(length));
    totals_.samples = bins.count();
    first_fragment_ = std::move(bins.begin);
    first_.reserve(first.size());
    rows_.reserve(rows.size());
    for (const uint32_t fragment : bins.items) {
        first_.push_back(first[fragment]);
        rows_.push_back(rows[fragment]);
    }
}

std::vector<std::string> PackedSamples::packing() const {
    uint32_t checksum = crc32c(std::as_bytes(std::span(first_)));
    checksum = crc32c(std::as_bytes(std::span(rows_)), checksum);
    checksum = crc32c(std::as_bytes(std::span(first_fragment_)), checksum);
    char text[32];
    std::snprintf(text, sizeof text, "; checksum %08x", checksum);
    return {totals_.text() + text};
}

void PackedSamples::fill(int64_t index, Sample& out) const {
    if (std::cmp_not_equal(out.tokens.size(), options_.seq_length)) {
        throw std::invalid_argument("PackedSamples::sample: needs a sample of seq_length tokens");
    }
    const auto sample = static_cast<size_t>(order_(index));
    size_t row = 0;
    for (int64_t fragment = first_fragment_[sample]; fragment < first_fragment_[sample + 1];
         ++fragment) {
        const auto i = static_cast<size_t>(fragment);
        const auto count = static_cast<size_t>(rows_[i]);
        read_labelled(*source_, first_[i], options_.vocab_size,
                      {.tokens = std::span(out.tokens).subspan(row, count),
                       .labels = std::span(out.labels).subspan(row, count),
                       .loss_weights = std::span(out.loss_weights).subspan(row, count)});
        std::fill_n(out.first_visible.begin() + static_cast<std::ptrdiff_t>(row), count,
                    static_cast<int32_t>(row));
        row += count;
    }
    std::fill(out.first_visible.begin() + static_cast<std::ptrdiff_t>(row), out.first_visible.end(),
              static_cast<int32_t>(row));
}

}  // namespace vocabpipe
