// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/sequence_output.hpp"
#include "src/train/evaluate/sequence_batch.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace vocabpipe {

/// Loss of one sequence.
struct SequenceLoss {
    double sum = 0;      ///< of the weighted cross-entropies of its labels, in nats
    int64_t tokens = 0;  ///< labels that are not ignored and have a weight above 0
    double weight = 0;   ///< sum of their weights
};

/// Runs a rank's evaluation plan over sequences and returns the plain cross-entropy of each,
/// without label smoothing and z-loss, under any schedule. Sequence i is in microbatch i / (micro
/// batch size) of the evaluation, and microbatch j * d + r belongs to replica r: losses depend on
/// neither d nor the order of the passes.
class SequenceLosses {
public:
    /// `plan`: index among the rank's plans. The rank must outlive it. `abandon` is asked before
    /// every batch; if it is true on any rank, the evaluation ends on all with AgreedError and
    /// ExitCode::terminated.
    SequenceLosses(TrainedRank& rank, size_t plan, const EvaluationShape& shape,
                   std::function<bool()> abandon = {});

    /// Losses of the sequences 0 .. count - 1, on every rank. `fill` is called for this replica's
    /// sequences and may throw; then all ranks throw. Collective.
    [[nodiscard]] std::vector<SequenceLoss> of(int64_t count, const FillSequence& fill);

private:
    void run(std::vector<SequenceLoss>& mine);

    TrainedRank& rank_;
    size_t plan_;
    Communicator& world_;
    SequenceOutput* output_;  ///< null without output rows
    EvaluationShape shape_;
    std::function<bool()> abandon_;
    SequenceBatch batch_;
    std::vector<double> sums_;  ///< of the current step, by sequence
};

}  // namespace vocabpipe
