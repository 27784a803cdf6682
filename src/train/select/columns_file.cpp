// SPDX-License-Identifier: Apache-2.0
#include "src/train/select/columns_file.hpp"

#include "src/select/files/npy/header.hpp"
#include "src/support/crc32c.hpp"
#include "src/support/safetensors/reader.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <utility>

namespace vocabpipe {

namespace {

/// Samples whose numbers the identity is a checksum of.
constexpr int64_t kIdentifiedSamples = 64;

std::string list_of(const std::vector<std::string>& names) {
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    return list;
}

}  // namespace

ColumnsFile::ColumnsFile(const std::string& flag, const std::string& path,
                         const ColumnsWanted& wanted)
    : given_(flag + " " + path),
      names_(wanted.names),
      samples_(wanted.samples),
      seq_length_(wanted.seq_length),
      file_(path.ends_with(".npy") ? InputFile(path) : open_safetensors(path, wanted)) {
    if (path.ends_with(".npy")) open_npy(wanted);
    identity_ = find_identity();
}

InputFile ColumnsFile::open_safetensors(const std::string& path, const ColumnsWanted& wanted) {
    const SafetensorsFile file(path);
    const std::vector<int64_t> shape{samples_, seq_length_};
    const auto begin_of = [&](const StoredTensor& tensor) {
        if (tensor.type == StoredType::F32 && tensor.shape == shape) return tensor.begin;
        throw InputFileError(given_ + ": tensor " + tensor.name + ": is " +
                             std::string(name_of(tensor.type)) + " " + shape_text(tensor.shape) +
                             "; it must be F32 " + shape_text(shape) +
                             ", the samples and --seq-length of the training data");
    };
    for (const std::string& name : names_) {
        const StoredTensor* const tensor = file.find(name);
        if (tensor == nullptr) {
            throw InputFileError(given_ + ": tensor " + name + " is missing; --loss reads " +
                                 list_of(names_));
        }
        begins_.push_back(begin_of(*tensor));
    }
    for (const StoredTensor& tensor : file.header().tensors) {
        if (tensor.name == kLossWeightsColumn) {
            weights_ = begin_of(tensor);
        } else if (std::ranges::count(names_, tensor.name) == 0 &&
                   std::ranges::count(wanted.known, tensor.name) == 0) {
            throw InputFileError(given_ + ": tensor " + readable(tensor.name) +
                                 ": no loss reads it; there are " + list_of(wanted.known) +
                                 " and " + kLossWeightsColumn);
        }
    }
    return file.open();
}

void ColumnsFile::open_npy(const ColumnsWanted& wanted) {
    std::vector<std::byte> head(std::min(file_.size(), kMostNpyHeaderBytes));
    file_.read(0, head);
    const NpyHeader header = parse_npy_header(head, file_.size(), file_.path());
    const auto columns = static_cast<int64_t>(names_.size());
    std::vector<int64_t> shape{columns, wanted.samples, wanted.seq_length};
    const bool has_weights = header.shape.size() == 3 && header.shape.front() == columns + 1;
    if (has_weights) ++shape.front();
    if (header.type != NpyType::f4 || header.shape != shape) {
        throw InputFileError(given_ + ": is " + std::string(descr_of(header.type)) + " " +
                             shape_text(header.shape) + "; it must be " +
                             std::string(descr_of(NpyType::f4)) + " " + shape_text(shape) + " of " +
                             list_of(names_) + ", and " + kLossWeightsColumn + " if given");
    }
    const auto begin_of = [&](int64_t column) {
        return header.data_begin +
               static_cast<uint64_t>(column * samples_ * seq_length_) * sizeof(float);
    };
    for (int64_t column = 0; column < columns; ++column) begins_.push_back(begin_of(column));
    if (has_weights) weights_ = begin_of(columns);
}

void ColumnsFile::read(uint64_t begin, int64_t number, std::span<float> to) const {
    file_.read(begin + static_cast<uint64_t>(number * seq_length_) * sizeof(float),
               std::as_writable_bytes(to));
}

void ColumnsFile::refuse(const std::string& column, int64_t number, size_t token, float value,
                         const std::string& limit) const {
    throw InputFileError(given_ + ": " + column + " of sample " + std::to_string(number) +
                         ", token " + std::to_string(token) + " is " + std::to_string(value) +
                         ", but it must be " + limit + "; write the file again");
}

void ColumnsFile::add(int64_t number, Sample& out) const {
    const auto length = static_cast<size_t>(seq_length_);
    out.columns.resize(begins_.size() * length);
    for (size_t c = 0; c < begins_.size(); ++c) {
        const std::span<float> column = std::span(out.columns).subspan(c * length, length);
        read(begins_[c], number, column);
        for (size_t n = 0; n < length; ++n) {
            if (!std::isfinite(column[n])) refuse(names_[c], number, n, column[n], "finite");
        }
    }
    if (!weights_) return;
    std::vector<float> weights(length);
    read(*weights_, number, weights);
    for (size_t n = 0; n < length; ++n) {
        if (!std::isfinite(weights[n]) || weights[n] < 0) {
            refuse(kLossWeightsColumn, number, n, weights[n], "finite and not negative");
        }
        out.loss_weights[n] *= weights[n];
    }
}

void ColumnsFile::check(int64_t most) const {
    const int64_t numbers = seq_length_ * (form().columns + (weights_ ? 1 : 0));
    const int64_t read = std::clamp(most / numbers, int64_t{1}, samples_);
    Sample sample(seq_length_);
    for (int64_t i = 0; i < read; ++i) add(i * samples_ / read, sample);
}

std::string ColumnsFile::find_identity() const {
    uint32_t checksum = 0;
    std::vector<uint64_t> begins = begins_;
    if (weights_) begins.push_back(*weights_);
    std::vector<float> numbers(static_cast<size_t>(seq_length_));
    const int64_t read = std::min(kIdentifiedSamples, samples_);
    for (int64_t i = 0; i < read; ++i) {
        for (const uint64_t begin : begins) {
            this->read(begin, i * samples_ / read, numbers);
            checksum = crc32c(std::as_bytes(std::span(numbers)), checksum);
        }
    }
    char text[96];
    std::snprintf(text, sizeof text, "%zu columns of %lld samples, checksum %08x", begins.size(),
                  static_cast<long long>(samples_), checksum);
    return text;
}

}  // namespace vocabpipe
