// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/scores_file.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace vocabpipe {

namespace {

constexpr std::string_view kScoresFormat = "vocabpipe scores 1";
constexpr const char* kUtility = "utility";
constexpr const char* kEmbedding = "embedding";
constexpr const char* kLoss = "loss";
constexpr const char* kUtilityKind = "utility.kind";

/// Keys of the metadata that are not provenance.
bool is_own_key(const std::string& key) {
    return key == "format" || key == kUtilityKind || key.starts_with("corpus.");
}

void check_rows(const TensorInput& file, const StoredTensor& tensor, int64_t samples) {
    if (tensor.shape.front() == samples) return;
    throw InputFileError(file.path() + ": tensor " + tensor.name + ": has " +
                         std::to_string(tensor.shape.front()) + " rows, but corpus.samples is " +
                         std::to_string(samples) + "; make the file again");
}

ScoresInfo read_info(const TensorInput& file) {
    ScoresInfo info{.corpus = Corpus::read_from(file.metadata(), file.path()),
                    .utility_kind = {},
                    .provenance = {}};
    const int64_t samples = info.corpus.samples;
    if (file.has(kUtility)) {
        check_rows(file, file.at(kUtility, StoredType::I32, 1), samples);
        const auto kind = file.metadata().find(kUtilityKind);
        if (kind == file.metadata().end() || kind->second.empty()) {
            throw InputFileError(file.path() + ": metadata: " + kUtilityKind +
                                 " is missing; make the file with vocabpipe select");
        }
        info.utility_kind = kind->second;
    }
    if (file.has(kEmbedding)) {
        const StoredTensor& tensor = file.at(kEmbedding, StoredType::F32, 2);
        check_rows(file, tensor, samples);
        info.hidden_size = tensor.shape.back();
        if (info.hidden_size < 1) {
            throw InputFileError(file.path() + ": tensor embedding: " + shape_text(tensor.shape) +
                                 " has no columns; make the file again");
        }
    }
    if (file.has(kLoss)) {
        check_rows(file, file.at(kLoss, StoredType::F32, 1), samples);
        info.loss = true;
    }
    if (info.utility_kind.empty() && info.hidden_size == 0 && !info.loss) {
        throw InputFileError(file.path() +
                             ": has neither utility, embedding nor loss; make it "
                             "with vocabpipe select score or import");
    }
    for (const auto& [key, value] : file.metadata()) {
        if (!is_own_key(key)) info.provenance[key] = value;
    }
    return info;
}

/// The first element that the format forbids, or the end.
template <typename T>
auto find_bad(std::span<T> values) {
    return std::ranges::find_if(values, [](auto value) {
        if constexpr (std::is_integral_v<decltype(value)>) {
            return value < 0;
        } else {
            return !std::isfinite(value);
        }
    });
}

template <typename T>
void read_checked(const TensorInput& file, const StoredTensor& tensor, int64_t first, int64_t cols,
                  std::span<T> to) {
    file.read(tensor, first * cols, to);
    const auto bad = find_bad(to);
    if (bad == to.end()) return;
    throw InputFileError(
        file.path() + ": tensor " + tensor.name + ": is " + std::to_string(*bad) + " for sample " +
        std::to_string(first + (bad - to.begin()) / cols) +
        (std::is_integral_v<T> ? "; it must be at least 0" : "; it must be a finite number"));
}

template <typename T>
void check_written(const char* name, std::span<const T> values) {
    if (find_bad(values) != values.end()) {
        throw std::invalid_argument(std::string("ScoresWriter: a value of ") + name +
                                    " that a reader would refuse");
    }
}

std::vector<StoredTensor> scores_tensors(const ScoresInfo& info) {
    std::vector<StoredTensor> tensors;
    const int64_t n = info.corpus.samples;
    if (!info.utility_kind.empty()) {
        tensors.push_back({.name = kUtility, .type = StoredType::I32, .shape = {n}});
    }
    if (info.hidden_size > 0) {
        tensors.push_back(
            {.name = kEmbedding, .type = StoredType::F32, .shape = {n, info.hidden_size}});
    }
    if (info.loss) tensors.push_back({.name = kLoss, .type = StoredType::F32, .shape = {n}});
    return tensors;
}

std::map<std::string, std::string> scores_metadata(const ScoresInfo& info) {
    std::map<std::string, std::string> metadata = info.provenance;
    metadata["format"] = kScoresFormat;
    if (!info.utility_kind.empty()) metadata[kUtilityKind] = info.utility_kind;
    info.corpus.write_to(metadata);
    return metadata;
}

}  // namespace

ScoresReader::ScoresReader(const std::string& path)
    : file_(path, {kScoresFormat}), info_(read_info(file_)) {}

void ScoresReader::read_utility(int64_t first, std::span<int32_t> to) const {
    read_checked(file_, file_.at(kUtility, StoredType::I32, 1), first, 1, to);
}

void ScoresReader::read_embedding(int64_t first, std::span<float> to) const {
    const StoredTensor& tensor = file_.at(kEmbedding, StoredType::F32, 2);
    read_checked(file_, tensor, first, info_.hidden_size, to);
}

void ScoresReader::read_loss(int64_t first, std::span<float> to) const {
    read_checked(file_, file_.at(kLoss, StoredType::F32, 1), first, 1, to);
}

ScoresWriter::ScoresWriter(Communicator& world, const std::string& path, const ScoresInfo& info)
    : hidden_size_(info.hidden_size),
      file_(world, path, scores_tensors(info), scores_metadata(info)) {}

void ScoresWriter::write_utility(int64_t first, std::span<const int32_t> values) {
    check_written(kUtility, values);
    file_.write(kUtility, first, values);
}

void ScoresWriter::write_embedding(int64_t first, std::span<const float> rows) {
    check_written(kEmbedding, rows);
    file_.write(kEmbedding, first * hidden_size_, rows);
}

void ScoresWriter::write_loss(int64_t first, std::span<const float> values) {
    check_written(kLoss, values);
    file_.write(kLoss, first, values);
}

}  // namespace vocabpipe
