// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/packed_samples.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <map>
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
    std::string text = counted(documents, "document") + " in ";
    for (size_t i = lengths.size(); i-- > 0;) {
        const LengthCount& of_length = lengths[i];
        if (i + 1 == lengths.size()) {
            text +=
                counted(of_length.count, "sequence") + " of " + counted(of_length.length, "token");
        } else {
            text += (i == 0 ? " and " : ", ") + std::to_string(of_length.count) + " of " +
                    std::to_string(of_length.length);
        }
    }
    text += std::string(", ") + share;
    if (cut > 0) text += "; " + counted(cut, "longer document") + " cut";
    if (single > 0) text += "; " + counted(single, "document") + " without a label left out";
    return text;
}

PackedSamples::PackedSamples(std::shared_ptr<const TokenSource> source,
                             const TokenDatasetOptions& options, PackingOptions packing)
    : source_(std::move(source)), options_(options), packing_(std::move(packing)), order_({1}, 0) {
    const int64_t longest = std::numeric_limits<int32_t>::max() - 1;
    if (options.seq_length < 1 || options.seq_length > longest) {
        throw UsageError("--seq-length " + std::to_string(options.seq_length) +
                         ": must be from 1 to " + std::to_string(longest) +
                         " with --packing-strategy bfd");
    }
    if (packing_.lengths.empty()) packing_.lengths = {options.seq_length};
    pack();
    if (totals_.samples == 0) {
        throw InputFileError(source_->info().name + ": " + std::to_string(totals_.single) +
                             " documents, none of at least two tokens, so that nothing can be "
                             "learnt; use more data, or --packing-strategy wrapped");
    }
    const auto refuse = [&](int64_t count, const std::string& size, const std::string& remedy) {
        if (!packing_.whole || count == 0) return;
        throw InputFileError(source_->info().name + ": has " + counted(count, "document") + " of " +
                             size + ", but every document must be a sample; " + remedy +
                             " out the pairs with such documents");
    };
    refuse(totals_.single, "less than two tokens", "leave");
    refuse(totals_.cut, "more than " + std::to_string(options.seq_length + 1) + " tokens",
           "use a larger --seq-length, or leave");
    order_samples();
}

void PackedSamples::pack() {
    const int64_t length = options_.seq_length;
    const std::vector<int64_t> starts = document_starts(*source_, options_.masks.end_of_document);
    std::vector<int64_t> first;
    std::vector<int32_t> rows;
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
    const std::vector<int32_t> capacities(packing_.lengths.begin(), packing_.lengths.end());
    Bins bins = packing_.one_each ? one_each(rows.size()) : best_fit(rows, capacities);
    totals_.samples = bins.count();
    first_fragment_ = std::move(bins.begin);
    first_.reserve(first.size());
    rows_.reserve(rows.size());
    for (const uint32_t fragment : bins.items) {
        first_.push_back(first[fragment]);
        rows_.push_back(rows[fragment]);
    }
}

void PackedSamples::order_samples() {
    std::map<int64_t, std::vector<uint32_t>> by_length;
    for (int64_t sample = 0; sample < totals_.samples; ++sample) {
        by_length[length_of(static_cast<size_t>(sample))].push_back(static_cast<uint32_t>(sample));
    }
    std::vector<int64_t> counts;
    for (const auto& [length, samples] : by_length) {
        counts.push_back(std::ssize(samples));
        totals_.lengths.push_back({.length = length, .count = counts.back()});
        totals_.tokens += length * counts.back();
        // Unshuffled samples follow the stream.
        if (by_length.size() == 1 || !options_.shuffle) continue;
        by_length_.insert(by_length_.end(), samples.begin(), samples.end());
    }
    order_ = StratifiedOrder(counts, options_.seed, options_.shuffle);
}

size_t PackedSamples::sample_at(int64_t index) const {
    const auto place = static_cast<size_t>(order_(index));
    return by_length_.empty() ? place : by_length_[place];
}

int64_t PackedSamples::length_of(size_t sample) const {
    if (packing_.lengths.size() == 1) return packing_.lengths.front();
    int64_t rows = 0;
    for (int64_t fragment = first_fragment_[sample]; fragment < first_fragment_[sample + 1];
         ++fragment) {
        rows += rows_[static_cast<size_t>(fragment)];
    }
    return *std::ranges::lower_bound(packing_.lengths, rows);
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
    const size_t sample = sample_at(index);
    if (std::cmp_not_equal(out.tokens.size(), length_of(sample))) {
        throw std::invalid_argument("PackedSamples::sample: needs a sample of length() tokens");
    }
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
