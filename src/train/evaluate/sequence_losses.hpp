// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/world.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace vocabpipe {

/// What an evaluation finds of one sequence.
struct SequenceLoss {
    double sum = 0;      ///< of the cross-entropies of its counted tokens, in nats
    int64_t tokens = 0;  ///< counted: their label is not negative
};

/// What an evaluation step is made of.
struct EvaluationShape {
    int64_t micro_batch_size = 1;  ///< sequences
    int64_t seq_length = 0;
    int microbatches = 1;  ///< per replica, of the evaluation's program
    Mesh mesh;
    int loss_rank = 0;  ///< pipeline rank that has the losses: the lowest with output rows
    bool separate_documents = false;  ///< tokens see their own document only
};

/// Where a sequence to be evaluated is written, seq_length each.
struct SequenceRow {
    std::span<int32_t> tokens;  ///< 0 behind the text
    std::span<int32_t> labels;  ///< -1 where not counted, all at first
    std::span<int32_t>
        first_visible;  ///< Microbatch's, 0 at first; empty unless separate_documents
};

/// Runs the evaluation program of a run (Executor's slot `slot`) over sequences: the plain
/// cross-entropy of each, without label smoothing and z-loss, whatever the schedule. Sequence i is
/// in microbatch i / micro batch of the evaluation, and microbatch j * d + r is replica r's:
/// losses depend on neither d nor the order of the passes.
class SequenceLosses {
public:
    /// Writes a sequence.
    using Fill = std::function<void(int64_t sequence, const SequenceRow& row)>;

    /// All must outlive it; `output` is null without output rows.
    SequenceLosses(Communicator& world, Executor& executor, size_t slot, Device& device,
                   OutputLayer* output, const EvaluationShape& shape);

    /// Of sequences 0 .. count - 1, on every rank. `fill` is called for this replica's sequences,
    /// and may throw: all ranks then end alike. Collective.
    [[nodiscard]] std::vector<SequenceLoss> of(int64_t count, const Fill& fill);

private:
    void load(int64_t first_microbatch, int64_t count, const Fill& fill);
    void run(std::vector<SequenceLoss>& mine);

    Communicator& world_;
    Executor& executor_;
    size_t slot_;
    Device& device_;
    OutputLayer* output_;
    EvaluationShape shape_;
    std::vector<int32_t> tokens_, labels_;  ///< of a step, sequence by sequence
    std::vector<int32_t> first_visible_;
    std::vector<float> counted_;  ///< 1 where a token counts, else 0
    std::vector<Microbatch> microbatches_;
    std::vector<double> sums_;  ///< of a step, by sequence
};

}  // namespace vocabpipe
