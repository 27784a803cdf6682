// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/lower.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Bytes alive on a rank at the live peak.
struct LiveBytes {
    int64_t activations = 0;
    int64_t vocabulary = 0;
    int64_t communication = 0;
    int64_t weights = 0;    ///< gathered
    int64_t gradients = 0;  ///< whole, of what ranks keep a part of
    [[nodiscard]] int64_t total() const {
        return activations + vocabulary + communication + weights + gradients;
    }
};

/// Estimates [rank] the buffers of a lowered program from the order of the passes only: tensors
/// that F and I keep, stage boundaries with one receive posted ahead, the output layer's tensors
/// from S to T, partial sums until the next vocabulary pass, and each pass's workspace.
/// `pairs_at_once`: both passes of a pair run at the same time.
[[nodiscard]] std::vector<LiveBytes> list_memory(const Schedule& schedule, const StepSizes& sizes,
                                                 bool pairs_at_once = false);

}  // namespace vocabpipe
