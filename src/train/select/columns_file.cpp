// SPDX-License-Identifier: Apache-2.0
#include "src/train/select/columns_file.hpp"

#include "src/select/files/npy/header.hpp"
#include "src/support/crc32c.hpp"
#include "src/support/joined.hpp"
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

std::string list_of(const std::vector<NamedColumns>& columns) {
    return joined(columns, ", ", [](const NamedColumns& one) {
        return one.count > 0 ? std::to_string(one.count) + " " + one.name : one.name;
    });
}

}  // namespace

ColumnsFile::ColumnsFile(const std::string& flag, const std::string& path,
                         const ColumnsWanted& wanted)
    : given_(flag + " " + path),
      samples_(wanted.samples),
      seq_length_(wanted.seq_length),
      vocab_size_(wanted.vocab_size),
      file_(path.ends_with(".npy") ? InputFile(path) : open_safetensors(path, wanted)) {
    if (path.ends_with(".npy")) open_npy(wanted);
    for (const Block& block : blocks_) columns_ += block.of.columns();
    identity_ = find_identity();
}

InputFile ColumnsFile::open_safetensors(const std::string& path, const ColumnsWanted& wanted) {
    const SafetensorsFile file(path);
    const auto block_of = [&](const NamedColumns& columns, const StoredTensor& tensor) {
        const bool integers = columns.kind == ColumnKind::id;
        const StoredType type = integers ? StoredType::I32 : StoredType::F32;
        std::vector<int64_t> shape{samples_, seq_length_};
        if (columns.count > 0) shape.push_back(columns.count);
        if (tensor.type == type && tensor.shape == shape) {
            return Block{.of = columns, .begin = tensor.begin, .integers = integers};
        }
        throw InputFileError(given_ + ": tensor " + tensor.name + ": is " +
                             std::string(name_of(tensor.type)) + " " + shape_text(tensor.shape) +
                             "; it must be " + std::string(name_of(type)) + " " +
                             shape_text(shape) + ", the samples and --seq-length of the " +
                             "training data" + (columns.count > 0 ? ", and --kd-top-k" : ""));
    };
    for (const NamedColumns& columns : wanted.columns) {
        const StoredTensor* const tensor = file.find(columns.name);
        if (tensor == nullptr) {
            throw InputFileError(given_ + ": tensor " + columns.name +
                                 " is missing; --loss reads " + list_of(wanted.columns));
        }
        blocks_.push_back(block_of(columns, *tensor));
    }
    for (const StoredTensor& tensor : file.header().tensors) {
        if (tensor.name == kLossWeightsColumn) {
            weights_ = block_of({.name = kLossWeightsColumn}, tensor);
        } else if (std::ranges::count(wanted.columns, tensor.name, &NamedColumns::name) == 0 &&
                   std::ranges::count(wanted.known, tensor.name) == 0) {
            throw InputFileError(given_ + ": tensor " + readable(tensor.name) +
                                 ": no loss reads it; there are " + joined(wanted.known) + " and " +
                                 kLossWeightsColumn);
        }
    }
    return file.open();
}

void ColumnsFile::open_npy(const ColumnsWanted& wanted) {
    std::vector<std::byte> head(std::min(file_.size(), kMostNpyHeaderBytes));
    file_.read(0, head);
    const NpyHeader header = parse_npy_header(head, file_.size(), file_.path());
    int64_t columns = 0;
    for (const NamedColumns& one : wanted.columns) columns += one.columns();
    std::vector<int64_t> shape{columns, wanted.samples, wanted.seq_length};
    // With one column, two may as well be two records of vocabpipe score.
    const bool has_weights =
        columns > 1 && header.shape.size() == 3 && header.shape.front() == columns + 1;
    if (has_weights) ++shape.front();
    // As vocabpipe score writes one record.
    if (columns == 1 && header.shape.size() == 2) shape.erase(shape.begin());
    if (header.type != NpyType::f4 || header.shape != shape) {
        throw InputFileError(given_ + ": is " + std::string(descr_of(header.type)) + " " +
                             shape_text(header.shape) + "; it must be " +
                             std::string(descr_of(NpyType::f4)) + " " + shape_text(shape) + " of " +
                             list_of(wanted.columns) +
                             (columns > 1 ? std::string(", and ") + kLossWeightsColumn + " if given"
                                          : std::string()));
    }
    int64_t column = 0;
    const auto next_block = [&](const NamedColumns& one) {
        return Block{
            .of = {.name = one.name, .kind = one.kind},
            .begin = header.data_begin +
                     static_cast<uint64_t>(column++ * samples_ * seq_length_) * sizeof(float)};
    };
    for (const NamedColumns& one : wanted.columns) {
        for (int64_t c = 0; c < one.columns(); ++c) blocks_.push_back(next_block(one));
    }
    if (has_weights) weights_ = next_block({.name = kLossWeightsColumn});
}

void ColumnsFile::read(const Block& block, int64_t number, std::span<float> to) const {
    const uint64_t begin = block.begin + static_cast<uint64_t>(number) * to.size() * sizeof(float);
    const auto columns = static_cast<size_t>(block.of.columns());
    if (columns == 1 && !block.integers) return file_.read(begin, std::as_writable_bytes(to));
    const size_t length = to.size() / columns;
    const auto transpose = [&]<typename T>(std::vector<T> numbers) {
        file_.read(begin, std::as_writable_bytes(std::span(numbers)));
        for (size_t n = 0; n < length; ++n) {
            for (size_t c = 0; c < columns; ++c) {
                to[c * length + n] = static_cast<float>(numbers[n * columns + c]);
            }
        }
    };
    if (block.integers) return transpose(std::vector<int32_t>(to.size()));
    transpose(std::vector<float>(to.size()));
}

void ColumnsFile::check(const NamedColumns& of, int64_t number,
                        std::span<const float> values) const {
    const auto limit = static_cast<float>(vocab_size_);
    const auto allowed = [&](float value) {
        switch (of.kind) {
            case ColumnKind::finite:
                return std::isfinite(value);
            case ColumnKind::logprob:
                return value < INFINITY;
            case ColumnKind::id:
                return value >= -1 && value < limit && value == std::floor(value);
        }
        return false;
    };
    const auto wrong = std::ranges::find_if_not(values, allowed);
    if (wrong == values.end()) return;
    const auto token =
        static_cast<size_t>(wrong - values.begin()) % static_cast<size_t>(seq_length_);
    refuse(of.name, number, token, *wrong,
           of.kind == ColumnKind::finite ? "finite"
           : of.kind == ColumnKind::logprob
               ? "a number below infinity"
               : "a token from 0 to " + std::to_string(vocab_size_ - 1) + ", or -1");
}

void ColumnsFile::refuse(const std::string& column, int64_t number, size_t token, float value,
                         const std::string& limit) const {
    throw InputFileError(given_ + ": " + column + " of sample " + std::to_string(number) +
                         ", token " + std::to_string(token) + " is " + std::to_string(value) +
                         ", but it must be " + limit + "; write the file again");
}

void ColumnsFile::add(int64_t number, Sample& out) const {
    const auto length = static_cast<size_t>(seq_length_);
    const size_t tokens = out.tokens.size();
    out.columns.resize(static_cast<size_t>(columns_) * length);
    std::span<float> rest = out.columns;
    for (const Block& block : blocks_) {
        const std::span<float> mine = rest.first(static_cast<size_t>(block.of.columns()) * length);
        rest = rest.subspan(mine.size());
        read(block, number, mine);
        check(block.of, number, mine);
    }
    for (size_t c = 1; c < static_cast<size_t>(columns_) && tokens < length; ++c) {
        std::copy_n(out.columns.data() + c * length, tokens, out.columns.data() + c * tokens);
    }
    out.columns.resize(static_cast<size_t>(columns_) * tokens);
    if (!weights_) return;
    std::vector<float> weights(length);
    read(*weights_, number, weights);
    for (size_t n = 0; n < length; ++n) {
        if (!std::isfinite(weights[n]) || weights[n] < 0) {
            refuse(kLossWeightsColumn, number, n, weights[n], "finite and not negative");
        }
        if (n < tokens) out.loss_weights[n] *= weights[n];
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
    std::vector<Block> blocks = blocks_;
    if (weights_) blocks.push_back(*weights_);
    std::vector<float> numbers;
    const int64_t read = std::min(kIdentifiedSamples, samples_);
    for (int64_t i = 0; i < read; ++i) {
        for (const Block& block : blocks) {
            numbers.resize(static_cast<size_t>(block.of.columns() * seq_length_));
            this->read(block, i * samples_ / read, numbers);
            checksum = crc32c(std::as_bytes(std::span(numbers)), checksum);
        }
    }
    char text[96];
    std::snprintf(text, sizeof text, "%lld columns of %lld samples, checksum %08x",
                  static_cast<long long>(form().columns + (weights_ ? 1 : 0)),
                  static_cast<long long>(samples_), checksum);
    return text;
}

}  // namespace vocabpipe
