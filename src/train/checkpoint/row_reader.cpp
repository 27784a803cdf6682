// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/row_reader.hpp"

#include "src/model/upload_values.hpp"
#include "src/train/checkpoint/stored_elements.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

constexpr int64_t kReadElements = 1 << 17;  // 512 KiB, read at once
constexpr int64_t kBandElements = 1 << 24;  // 64 MiB of a matrix that is transposed
constexpr int64_t kTile = 64;               // columns, whose lines stay in the first cache

}  // namespace

void RowReader::read(const HeldRows& held, Tensor to) {
    const int64_t most = transposed_ ? kBandElements : kReadElements;
    const int64_t band = std::max<int64_t>(1, most / to.cols);
    for (int64_t first = 0; first < to.rows; first += band) {
        const int64_t count = std::min(band, to.rows - first);
        staged_.resize(static_cast<size_t>(count * to.cols));
        if (transposed_) {
            read_columns(held, held.rows.first + first, count);
        } else {
            read_rows(held, held.rows.first + first, count);
        }
        upload_values(device_, staged_, to, first * to.cols);
    }
}

size_t RowReader::bytes_of(int64_t elements) const {
    return static_cast<size_t>(elements) * item_size(type_);
}

void RowReader::read_at(int64_t element, std::span<std::byte> bytes) const {
    file_.read(begin_ + bytes_of(element), bytes);
}

void RowReader::read_rows(const HeldRows& held, int64_t first, int64_t count) {
    const auto elements = static_cast<int64_t>(staged_.size());
    std::span<std::byte> to = std::as_writable_bytes(std::span(staged_));
    if (type_ != StoredType::F32) {
        raw_.resize(bytes_of(elements));
        to = raw_;
    }
    if (elements == count * held.width) {
        read_at(first * held.width, to);
    } else {
        for (int64_t row = first; row < first + count; ++row) {
            for (const TensorShard::Range& run : held.columns) {
                read_at(row * held.width + run.first, to.first(bytes_of(run.count)));
                to = to.subspan(bytes_of(run.count));
            }
        }
    }
    if (type_ == StoredType::F32) return;
    with_elements(type_, raw_.data(), [&](const auto& element) {
        for (int64_t i = 0; i < elements; ++i) staged_[static_cast<size_t>(i)] = element(i);
    });
}

void RowReader::read_columns(const HeldRows& held, int64_t first, int64_t count) {
    const int64_t cols = static_cast<int64_t>(staged_.size()) / count;
    int64_t before = 0;  // columns of the rank
    for (const TensorShard::Range& run : held.columns) {
        for (int64_t c0 = 0; c0 < run.count; c0 += kTile) {
            const int64_t tile = std::min(kTile, run.count - c0);
            raw_.resize(bytes_of(tile * count));                  // (tile, count)
            const int64_t at_once = count == height_ ? tile : 1;  // they are contiguous in the file
            for (int64_t c = 0; c < tile; c += at_once) {
                read_at((run.first + c0 + c) * height_ + first,
                        std::span(raw_).subspan(bytes_of(c * count), bytes_of(at_once * count)));
            }
            with_elements(type_, raw_.data(), [&](const auto& element) {
                for (int64_t r = 0; r < count; ++r) {
                    float* const row = staged_.data() + r * cols + before + c0;
                    for (int64_t c = 0; c < tile; ++c) row[c] = element(c * count + r);
                }
            });
        }
        before += run.count;
    }
}

}  // namespace vocabpipe
