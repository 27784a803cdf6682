// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace vocabpipe {

/// Batch-size warm-up, --rampup-batch-size START INCREMENT SAMPLES: steps begin with START
/// sequences, and grow by INCREMENT at equal distances within the first SAMPLES sequences.
struct BatchSizeRampUp {
    int64_t start = 0;
    int64_t increment = 0;
    int64_t samples = 0;
};

/// The global batch size of every step, as a function of the sequences consumed so far, so a
/// resumed run needs nothing else. Megatron's rule, in whole numbers: with n = (full - START) /
/// INCREMENT increments, a step that begins after c sequences has START + floor(c n / SAMPLES)
/// INCREMENT of them, and from SAMPLES on the full size.
class BatchSizeSchedule {
public:
    /// `unit`: sequences of one microbatch on every replica; UsageError if a size is not a multiple
    /// of it, or if START, INCREMENT and the full size do not fit together.
    BatchSizeSchedule(int64_t full, const std::optional<BatchSizeRampUp>& ramp_up, int64_t unit);

    /// Size of the step that begins after `consumed` sequences.
    [[nodiscard]] int64_t at(int64_t consumed) const;
    /// Microbatches of that step, per replica.
    [[nodiscard]] int microbatches(int64_t consumed) const {
        return static_cast<int>(at(consumed) / unit_);
    }
    /// Number of steps in a run of `samples` samples, as Megatron counts them: while sizes grow, a
    /// step may begin as long as no more than `samples` are consumed; after that, only full batches
    /// count.
    [[nodiscard]] int64_t steps_of(int64_t samples) const;
    /// The numbers of microbatches that steps of the warm-up may have, ascending, without the full
    /// batch's; empty without a warm-up.
    [[nodiscard]] std::vector<int> smaller() const;
    [[nodiscard]] int full() const { return static_cast<int>(full_ / unit_); }

private:
    int64_t full_;
    int64_t unit_;
    std::optional<BatchSizeRampUp> ramp_up_;
    int64_t increments_ = 0;
};

}  // namespace vocabpipe
