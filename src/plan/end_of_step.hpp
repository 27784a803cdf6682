// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/step_model.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// When the passes of a step end, in nanoseconds since its begin.
struct PassEnds {
    std::vector<int64_t> rank;    ///< [pipeline rank] all passes
    std::vector<int64_t> stage;   ///< [stage] the last backward, W included
    std::vector<int64_t> input;   ///< [pipeline rank] the last G; unused where there is none
    std::vector<int64_t> output;  ///< [pipeline rank] the last T; likewise
};

/// What follows the passes of a step, by formulas: sums of a tied weight's gradients from two
/// ranks, sums of gradients over replicas and tensor ranks, Report, its all-gather, Update, and the
/// gather of updated weights. As in a program, gradients of a bucket travel in pieces as soon as
/// its last one is made, two pieces at a time.
class EndOfStep {
public:
    /// `step` must outlive it.
    explicit EndOfStep(const StepModel& step);

    /// Nanoseconds until the step ends.
    [[nodiscard]] int64_t step_ns(PassEnds ends) const;
    /// No more than step_ns() of any ends that are nowhere earlier than these.
    [[nodiscard]] int64_t least_step_ns(PassEnds ends) const;
    /// [pipeline rank] Nanoseconds of its passes after those of the schedule.
    [[nodiscard]] std::vector<int64_t> busy_ns() const;
    /// Bytes of the other rank's gradient of a tied weight, which two ranks receive when
    /// activations are freed; 0: nobody does.
    [[nodiscard]] int64_t received_bytes() const;
    /// Whether the rank receives these bytes.
    [[nodiscard]] bool receives(int rank) const;

private:
    /// A bucket that others have, too: adding up its gradients piece by piece.
    struct Sum {
        const GradientBucket* bucket = nullptr;
        int64_t pieces = 1;
        int64_t travel_ns = 0, add_ns = 0;  ///< of a piece
        [[nodiscard]] int64_t piece_ns() const { return travel_ns + add_ns; }
    };
    struct Reduction {
        std::vector<Sum> sums;
        int64_t gather_ns = 0;  ///< of the parts that each rank updated
    };
    [[nodiscard]] Reduction reduction_of(int rank, int64_t piece) const;
    [[nodiscard]] int64_t ready_ns(const Sum& sum, size_t rank, const PassEnds& ends) const;
    [[nodiscard]] int64_t summed_ns(size_t rank, const PassEnds& ends) const;
    [[nodiscard]] int64_t least_summed_ns(size_t rank, const PassEnds& ends) const;
    template <typename Summed>
    [[nodiscard]] int64_t end_ns(PassEnds ends, const Summed& summed) const;
    [[nodiscard]] int64_t pass_ns(int rank, Op op) const;
    [[nodiscard]] bool reduces(int rank) const;
    void reduce_tied(PassEnds& ends) const;

    const StepModel& step_;
    const Mesh mesh_;
    const bool at_once_;                    ///< communication does not wait for the one before
    int input_rank_ = 0, output_rank_ = 0;  ///< first owners of the vocabulary layers
    std::vector<Reduction> reductions_;     ///< [pipeline rank]
    int64_t reports_ns_ = 0;                ///< all-gather of reports
};

}  // namespace vocabpipe
