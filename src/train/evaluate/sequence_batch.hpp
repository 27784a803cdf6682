// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context_cut.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/modules.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace vocabpipe {

/// Sizes of an evaluation step.
struct EvaluationShape {
    int64_t micro_batch_size = 1;  ///< sequences
    int64_t seq_length = 0;
    int microbatches = 1;  ///< per replica, of the evaluation's program
    Mesh mesh;
    int loss_rank = 0;  ///< pipeline rank that has the losses: the lowest with output rows
    bool separate_documents = false;  ///< tokens see their own document only

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

/// Where to write a whole sequence that is evaluated; each span has seq_length elements.
struct SequenceRow {
    std::span<int32_t> tokens;  ///< initially 0; stays so after the text
    std::span<int32_t> labels;  ///< initially -1: not counted
    std::span<int32_t>
        first_visible;  ///< Microbatch's, 0 at first; empty unless separate_documents
};

/// Writes a sequence.
using FillSequence = std::function<void(int64_t sequence, const SequenceRow& row)>;

/// The microbatches of one replica in an evaluation step, and of every sequence the tokens of a
/// context rank. Rows after the last sequence do not count.
class SequenceBatch {
public:
    /// `rank`: of the world.
    SequenceBatch(const EvaluationShape& shape, int rank);
    SequenceBatch(const SequenceBatch&) = delete;
    SequenceBatch& operator=(const SequenceBatch&) = delete;

    /// Loads the step that begins with microbatch `first` of an evaluation of `count` sequences;
    /// calls `fill` for this replica's.
    void load(int64_t first, int64_t count, const FillSequence& fill);
    [[nodiscard]] std::span<const Microbatch> microbatches() const { return microbatches_; }
    /// This rank's tokens of a row whose label is not negative.
    [[nodiscard]] int64_t counted(int64_t row) const;

private:
    EvaluationShape shape_;
    int replica_;
    ContextCut cut_;
    std::vector<int32_t> whole_tokens_, whole_labels_, whole_first_visible_;  ///< of a sequence
    std::vector<int32_t> tokens_, labels_;  ///< sequence by sequence
    std::vector<int32_t> first_visible_;
    std::vector<float> counted_;  ///< 1 where a token counts, else 0
    std::vector<Microbatch> microbatches_;
};

}  // namespace vocabpipe
