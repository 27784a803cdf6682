// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace vocabpipe {

/// Linear warm-up, then cosine decay to min_lr at train_iters (Megatron's `cosine`).
struct LearningRateSchedule {
    double lr = 3e-4;
    double min_lr = 0;
    int64_t warmup_iters = 0;
    int64_t decay_iters = 1;

    /// Of step 1, 2, ...
    [[nodiscard]] double at(int64_t step) const {
        if (step <= warmup_iters) {
            return lr * static_cast<double>(step) / static_cast<double>(warmup_iters);
        }
        if (step >= decay_iters) return min_lr;
        const double done = static_cast<double>(step - warmup_iters) /
                            static_cast<double>(decay_iters - warmup_iters);
        return min_lr + 0.5 * (1 + std::cos(std::numbers::pi * done)) * (lr - min_lr);
    }
};

}  // namespace vocabpipe
