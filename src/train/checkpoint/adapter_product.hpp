// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/checkpoint/model_weights.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// What the adapter of a weight adds to it: scale B A, in the layout of the weight's file.
class AdapterProduct {
public:
    /// Reads A (rank, in) and B (out, rank). `transposed`: the file of the weight has [in, out].
    AdapterProduct(const FoundTensor& a, const FoundTensor& b, float scale, bool transposed);

    /// Adds it to the weight's elements from `first` on, in the order of the file. Sums in double,
    /// rounded once.
    void add(int64_t first, std::span<float> values) const;

private:
    int64_t rank_, columns_;     ///< columns of the weight in its file
    std::vector<double> left_;   ///< (rows of the file, rank), times scale
    std::vector<double> right_;  ///< (rank, columns)
};

/// The product for the weight of this name; none without an adapter.
[[nodiscard]] std::optional<AdapterProduct> adapter_product(const ModelWeights& weights,
                                                            const std::string& weight, float scale,
                                                            bool transposed);

}  // namespace vocabpipe
