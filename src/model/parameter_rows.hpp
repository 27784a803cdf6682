// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/lower.hpp"
#include "vocabpipe/modules.hpp"

#include <cstdint>

namespace vocabpipe {

/// Which part of a logical parameter a rank holds.
struct ParameterRows {
    int id = 0;
    TensorShard shard = {};
    /// It has memory for so many rows, as all ranks that share the stage do: buckets are equally
    /// long on them. At least those of the shard.
    int64_t memory_rows = 0;
    /// Over which its gradients are added up.
    Axis axis = Axis::data;
    /// A tied output weight beside the input weight of the same rank: shares its memory, gradient
    /// and moments. The input layer adds up its part of the gradient apart.
    bool shares_previous_weight = false;
    bool counted_elsewhere = false;
    GradientBucket::Of of = GradientBucket::Of::stage;
    int stage = 0;  ///< global; of a stage's
    /// Of the model; of the final norm the number of layers.
    static constexpr int kNoLayer = -1;
    int layer = kNoLayer;
    ElementRange owned = {};  ///< of the shard: what this rank updates

    /// Elements of the shard, and those that it has memory for.
    [[nodiscard]] int64_t size() const { return shard.size(); }
    [[nodiscard]] int64_t memory_size() const { return memory_rows * shard.column_count(); }
};

}  // namespace vocabpipe
