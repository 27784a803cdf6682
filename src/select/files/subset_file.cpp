// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/subset_file.hpp"

#include "src/support/crc32c.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace vocabpipe {

namespace {

constexpr std::string_view kSubsetFormat = "vocabpipe subset 1";
constexpr const char* kSample = "sample";
constexpr int64_t kBlock = 8192;  // numbers read at a time

/// Why a number may not follow `before` (-1: none before it); empty if it may.
std::string refusal_of(int64_t before, int64_t sample, int64_t corpus_samples) {
    if (sample < 0 || sample >= corpus_samples) {
        return "is " + std::to_string(sample) + ", but the corpus has samples 0 to " +
               std::to_string(corpus_samples - 1);
    }
    if (sample <= before) {
        return "is " + std::to_string(sample) + " after " + std::to_string(before) +
               "; numbers must ascend, and none may come twice";
    }
    return {};
}

SubsetInfo read_subset_info(const TensorInput& file, const StoredTensor& samples) {
    SubsetInfo info{.corpus = Corpus::read_from(file.metadata(), file.path()),
                    .count = samples.shape.front(),
                    .provenance = {}};
    if (info.count > info.corpus.samples) {
        throw InputFileError(file.path() + ": tensor sample: has " + std::to_string(info.count) +
                             " numbers, but corpus.samples is " +
                             std::to_string(info.corpus.samples) + "; make the file again");
    }
    for (const auto& [key, value] : file.metadata()) {
        if (key != "format" && !key.starts_with("corpus.")) info.provenance[key] = value;
    }
    return info;
}

std::map<std::string, std::string> subset_metadata(const SubsetInfo& info) {
    std::map<std::string, std::string> metadata = info.provenance;
    metadata["format"] = kSubsetFormat;
    info.corpus.write_to(metadata);
    return metadata;
}

}  // namespace

SubsetReader::SubsetReader(const std::string& path)
    : file_(path, {kSubsetFormat}),
      samples_(&file_.at(kSample, StoredType::I64, 1)),
      info_(read_subset_info(file_, *samples_)) {}

void SubsetReader::read(int64_t first, std::span<int64_t> to) const {
    if (to.empty()) return;
    file_.read(*samples_, first, to);
    int64_t before = -1;
    if (first > 0) file_.read(*samples_, first - 1, std::span(&before, 1));
    for (size_t i = 0; i < to.size(); before = to[i++]) {
        const std::string refusal = refusal_of(before, to[i], info_.corpus.samples);
        if (refusal.empty()) continue;
        throw InputFileError(path() + ": sample " +
                             std::to_string(first + static_cast<int64_t>(i)) + ": " + refusal +
                             "; make the file again");
    }
}

std::vector<int64_t> SubsetReader::all() const {
    std::vector<int64_t> samples(static_cast<size_t>(count()));
    read(0, samples);
    return samples;
}

uint32_t SubsetReader::checksum() const {
    std::vector<int64_t> block(static_cast<size_t>(std::min(kBlock, count())));
    uint32_t sum = 0;
    for (int64_t first = 0; first < count(); first += kBlock) {
        const auto part =
            std::span(block).first(static_cast<size_t>(std::min(kBlock, count() - first)));
        read(first, part);
        sum = crc32c(std::as_bytes(part), sum);
    }
    return sum;
}

int64_t SubsetReader::position_of(int64_t sample) const {
    int64_t low = 0;
    int64_t high = count();
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        int64_t found = 0;
        read(middle, std::span(&found, 1));
        if (found < sample) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

SubsetWriter::SubsetWriter(Communicator& world, const std::string& path, const SubsetInfo& info,
                           const std::string& scratch)
    : corpus_samples_(info.corpus.samples),
      file_(world, path, {{.name = kSample, .type = StoredType::I64, .shape = {info.count}}},
            subset_metadata(info), scratch) {}

void SubsetWriter::write(int64_t first, std::span<const int64_t> samples) {
    int64_t before = -1;
    for (const int64_t sample : samples) {
        const std::string refusal = refusal_of(before, sample, corpus_samples_);
        if (!refusal.empty()) throw std::invalid_argument("SubsetWriter: a sample " + refusal);
        before = sample;
    }
    file_.write(kSample, first, samples);
}

}  // namespace vocabpipe
