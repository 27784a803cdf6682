// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace vocabpipe {

/// Batch-size warm-up, --rampup-batch-size START INCREMENT SAMPLES: steps begin with START
/// sequences and take INCREMENT more at equal distances within the first SAMPLES sequences.
struct BatchSizeRampUp {
    int64_t start = 0;
    int64_t increment = 0;
    int64_t samples = 0;
};

/// The global batch size of every step, from the sequences that the run has consumed: where a
/// resumed run goes on says all. Megatron's rule, in whole numbers: with n = (full - START) /
/// INCREMENT increments, a step that begins after c sequences has START + floor(c n / SAMPLES)
/// INCREMENT of them, and from SAMPLES on the full size.
class BatchSizeSchedule {
public:
    /// `unit`: sequences of one microbatch on every replica, of which all sizes must be multiples.
    /// UsageError otherwise, or if START, INCREMENT and the full size do not fit together.
    BatchSizeSchedule(int64_t full, const std::optional<BatchSizeRampUp>& ramp_up, int64_t unit);

    /// Of the step that begins after `consumed` sequences.
    [[nodiscard]] int64_t at(int64_t consumed) const;
    /// Microbatches of that step, per replica.
    [[nodiscard]] int microbatches(int64_t consumed) const {
        return static_cast<int>(at(consumed) / unit_);
    }
    /// Steps of a run of so many samples, as Megatron counts them: while sizes grow, a step begins
    /// wherever no more have been consumed; of what is left a last batch that is not full is not
    /// taken.
    [[nodiscard]] int64_t steps_of(int64_t samples) const;
    /// Every number of microbatches below the full batch's that a step of the warm-up may have,
    /// rising; empty without one.
    [[nodiscard]] std::vector<int> smaller() const;
    [[nodiscard]] int full() const { return static_cast<int>(full_ / unit_); }

private:
    int64_t full_;
    int64_t unit_;
    std::optional<BatchSizeRampUp> ramp_up_;
    int64_t increments_ = 0;
};

}  // namespace vocabpipe
