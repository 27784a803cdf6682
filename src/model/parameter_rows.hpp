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
    /// Rows that the rank has memory for: at least those of the shard. The same on all ranks that
    /// share the stage, so that their buckets have the same length.
    int64_t memory_rows = 0;
    /// The axis over which its gradients are added up.
    Axis axis = Axis::data;
    /// A tied output weight on the rank that also has the input weight: shares its memory, gradient
    /// and moments. The input layer sums its part of the gradient separately.
    bool shares_previous_weight = false;
    bool counted_elsewhere = false;
    bool frozen = false;  ///< ModelPartition::frozen
    GradientBucket::Of of = GradientBucket::Of::stage;
    int stage = 0;  ///< global; for a stage's parameters
    /// Number of the layer in the model; for the final norm the number of layers.
    static constexpr int kNoLayer = -1;
    int layer = kNoLayer;
    ElementRange owned = {};  ///< elements of the shard that this rank updates (Parameter::owned)

    /// Elements of the shard, and elements that the rank has memory for.
    [[nodiscard]] int64_t size() const { return shard.size(); }
    [[nodiscard]] int64_t memory_size() const { return memory_rows * shard.column_count(); }
};

}  // namespace vocabpipe
