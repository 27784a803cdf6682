// SPDX-License-Identifier: Apache-2.0
#include "src/select/knn/unit_rows.hpp"

#include "src/select/knn/embedding_rows.hpp"
#include "vocabpipe/error.hpp"

#include <cmath>
#include <string>

namespace vocabpipe {

UnitRows::UnitRows(int64_t tiles, int64_t width)
    : width_(width),
      stride_(stride_of(width)),
      data_(static_cast<size_t>(tiles * kKnnTile * stride_)) {}

int64_t UnitRows::stride_of(int64_t width) {
    return (width + 15) / 16 * 16;
}

uint64_t UnitRows::bytes(int64_t tiles, int64_t width) {
    return static_cast<uint64_t>(tiles * kKnnTile * stride_of(width)) * sizeof(float);
}

void UnitRows::read(EmbeddingInput& input, int64_t first, int64_t last) {
    const auto width = static_cast<size_t>(width_);
    for_each_embedding(input, first, last, [&](int64_t sample, const float* from) {
        double squares = 0;
        for (size_t j = 0; j < width; ++j) squares += double{from[j]} * double{from[j]};
        if (!(squares > 0) || !std::isfinite(squares)) {
            throw InputFileError(input.path() + ": embedding of sample " + std::to_string(sample) +
                                 (squares == 0 ? ": is all zeros, which has no direction"
                                               : ": is no row of finite numbers") +
                                 "; remove the sample or give it an embedding");
        }
        const double length = std::sqrt(squares);
        float* const to = data_.data() + (sample - first) * stride_;
        for (size_t j = 0; j < width; ++j) to[j] = static_cast<float>(double{from[j]} / length);
    });
}

}  // namespace vocabpipe
