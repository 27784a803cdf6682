// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/sample_input.hpp"
#include "src/select/knn/tiles.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// Embeddings scaled to length 1, in whole tiles; missing rows of the last one are 0.
class UnitRows {
public:
    /// `tiles` tiles, all 0.
    UnitRows(int64_t tiles, int64_t width);
    /// Floats from row to row: whole cache lines.
    [[nodiscard]] static int64_t stride_of(int64_t width);
    [[nodiscard]] static uint64_t bytes(int64_t tiles, int64_t width);

    /// Reads the samples [first, last) into the first rows. Each is divided by its length: the
    /// square root of the sum of squares, in fp64 and in the order of the elements. InputFileError
    /// for a row of zeros.
    void read(EmbeddingInput& input, int64_t first, int64_t last);

    [[nodiscard]] int64_t width() const { return width_; }
    [[nodiscard]] int64_t stride() const { return stride_; }
    [[nodiscard]] const float* tile(int64_t index) const {
        return data_.data() + index * kKnnTile * stride_;
    }
    [[nodiscard]] const float* row(int64_t index) const { return data_.data() + index * stride_; }
    [[nodiscard]] std::span<std::byte> all_bytes() {
        return std::as_writable_bytes(std::span(data_));
    }

private:
    int64_t width_, stride_;
    std::vector<float> data_;
};

}  // namespace vocabpipe
