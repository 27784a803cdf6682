// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/batch_rows.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/sample_source.hpp"

#include <cstdint>
#include <functional>
#include <span>

namespace vocabpipe {

/// Sizes of an evaluation step.
struct EvaluationShape {
    int64_t micro_batch_size = 1;  ///< sequences
    int64_t seq_length = 0;
    int microbatches = 1;  ///< per replica, of the evaluation's program
    Mesh mesh;
    int loss_rank = 0;     ///< pipeline rank that has the losses: the lowest with output rows
    SampleForm form = {};  ///< of the sequences

    /// Microbatches of a step, all replicas together.
    [[nodiscard]] int64_t microbatches_per_step() const {
        return int64_t{microbatches} * mesh.data;
    }
    /// Sequences of a replica's step.
    [[nodiscard]] int64_t sequences_per_replica() const { return microbatches * micro_batch_size; }
    /// Microbatches that hold `count` sequences.
    [[nodiscard]] int64_t microbatches_of(int64_t count) const {
        return (count + micro_batch_size - 1) / micro_batch_size;
    }
    /// The sequence in `row` of a replica's step that begins with microbatch `first`: microbatch j
    /// * d + r of the evaluation belongs to replica r.
    [[nodiscard]] int64_t sequence_of(int64_t first, int64_t row, int replica) const {
        const int64_t microbatch = first + row / micro_batch_size * mesh.data + replica;
        return microbatch * micro_batch_size + row % micro_batch_size;
    }
};

/// Writes a whole sequence that is evaluated into a clear sample.
using FillSequence = std::function<void(int64_t sequence, Sample& to)>;

/// The microbatches of one replica in an evaluation step, and of every sequence the tokens of a
/// context rank. Rows after the last sequence do not count.
class SequenceBatch {
public:
    /// `rank`: of the world.
    SequenceBatch(const EvaluationShape& shape, int rank);

    /// All sequences have so many tokens from the next load() on; before: EvaluationShape's.
    void set_length(int64_t seq_length);
    /// Loads the step that begins with microbatch `first` of an evaluation of `count` sequences;
    /// calls `fill` for this replica's.
    void load(int64_t first, int64_t count, const FillSequence& fill);
    [[nodiscard]] std::span<const Microbatch> microbatches() const { return rows_.microbatches(); }
    /// This rank's labels in a row that are not ignored, and the sum of their weights.
    struct Labels {
        int64_t count = 0;
        double weight = 0;
    };
    [[nodiscard]] Labels labels(int64_t row) const;
    /// Weights of this rank's labels in a row; 0 where ignored.
    [[nodiscard]] std::span<const float> weights(int64_t row) const {
        return rows_.loss_gradients(row);
    }

private:
    EvaluationShape shape_;
    int replica_;
    BatchRows rows_;
    Sample sample_;  ///< buffer of a whole sequence
};

}  // namespace vocabpipe
