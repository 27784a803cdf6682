// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/verify/loss_log.hpp"

#include <cstdint>
#include <optional>
#include <span>

namespace vocabpipe {

/// How far two losses may be apart.
struct LossTolerance {
    /// Relative, of step 1. Step n may differ by sqrt(n) times that (docs/verification.md).
    double relative = 0;
    int64_t last_step = INT64_MAX;  ///< steps after it are not compared
};

/// The losses of a step in two logs.
struct LossPair {
    LoggedLoss mine, other;
    double tolerance = 0;  ///< of their difference

    /// False if one of them is no number and the other is one.
    [[nodiscard]] bool agrees() const;
    /// Difference over tolerance; infinite where they do not agree on what is a number.
    [[nodiscard]] double share() const;
};

/// What a comparison found.
struct LossComparison {
    int64_t steps = 0;              ///< that both logs have
    std::optional<LossPair> first;  ///< the first pair that does not agree
    int64_t differing = 0;          ///< such pairs
    std::optional<LossPair> worst;  ///< of those that agree, the one nearest to its tolerance
};

/// Compares the steps that both have; both ascending by step.
[[nodiscard]] LossComparison compare_losses(std::span<const LoggedLoss> mine,
                                            std::span<const LoggedLoss> other,
                                            const LossTolerance& tolerance);

/// The relative tolerance of a run in fp32, or in bf16.
[[nodiscard]] double default_loss_tolerance(bool bf16);

}  // namespace vocabpipe
