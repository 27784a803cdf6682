// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/lower.hpp"
#include "vocabpipe/modules.hpp"

#include <cstdint>

namespace vocabpipe {

/// Which rows of a logical parameter a rank holds.
struct ParameterRows {
    int id = 0;
    int64_t first_row = 0;
    int64_t rows = 0;
    /// A tied output weight beside the input weight of the same rank: shares its memory and
    /// moments, has a gradient of its own.
    bool shares_previous_weight = false;
    bool counted_elsewhere = false;
    GradientBucket::Of of = GradientBucket::Of::stage;
    int stage = 0;  ///< global; of a stage's
    /// Of the model; of the final norm the number of layers.
    static constexpr int kNoLayer = -1;
    int layer = kNoLayer;
    ElementRange owned = {};  ///< of these rows: what this replica updates
};

}  // namespace vocabpipe
