// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/step_model.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// What follows the passes of a step, by formulas: sums of a tied weight's gradients from two
/// ranks, sums of gradients over replicas and tensor ranks, Report, its all-gather, Update, and the
/// exchange of updated weights. Collectives cost their latency and do not queue.
class EndOfStep {
public:
    /// `step` must outlive it.
    explicit EndOfStep(const StepModel& step);

    /// Nanoseconds until the step ends if the passes of pipeline rank k end at `ends[k]`. Never
    /// falls when an end comes later, so lower bounds of the ends give one of the step.
    [[nodiscard]] int64_t step_ns(std::vector<int64_t> ends) const;
    /// [pipeline rank] Nanoseconds of its passes after those of the schedule.
    [[nodiscard]] std::vector<int64_t> busy_ns() const;
    /// Bytes of the other rank's gradient of a tied weight, which two ranks receive when
    /// activations are freed; 0: nobody does.
    [[nodiscard]] int64_t received_bytes() const;
    /// Whether the rank receives these bytes.
    [[nodiscard]] bool receives(int rank) const;

private:
    /// Communication for a rank's weights that others have, too: adding up their gradients, and
    /// gathering the parts that each rank updated.
    struct Exchange {
        int64_t sum_ns = 0, gather_ns = 0;
    };
    [[nodiscard]] Exchange exchange_of(int rank) const;
    [[nodiscard]] int64_t pass_ns(int rank, Op op) const;
    [[nodiscard]] bool reduces(int rank) const;
    void reduce_tied(std::vector<int64_t>& ends) const;

    const StepModel& step_;
    const Mesh mesh_;
    int input_rank_ = 0, output_rank_ = 0;  ///< first owners of the vocabulary layers
    std::vector<Exchange> exchanges_;       ///< [pipeline rank]
    int64_t reports_ns_ = 0;                ///< all-gather of reports
};

}  // namespace vocabpipe
