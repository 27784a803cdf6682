// SPDX-License-Identifier: Apache-2.0
#include "src/train/evaluate/sequence_batch.hpp"

#include "vocabpipe/context_cut.hpp"

#include <cstddef>
#include <vector>

namespace vocabpipe {

SequenceBatch::SequenceBatch(const EvaluationShape& shape, int rank)
    : shape_(shape),
      replica_(shape.mesh.replica(rank)),
      rows_(shape.form,
            ContextCut(shape.seq_length, shape.mesh.place(rank).context, shape.mesh.context),
            shape.micro_batch_size),
      sample_(shape.seq_length) {
    rows_.resize(shape.microbatches);
}

void SequenceBatch::set_length(int64_t seq_length) {
    rows_.resize(std::vector<int64_t>(static_cast<size_t>(shape_.microbatches), seq_length));
    sample_.resize(seq_length);
}

void SequenceBatch::load(int64_t first, int64_t count, const FillSequence& fill) {
    for (int64_t row = 0; row < shape_.sequences_per_replica(); ++row) {
        sample_.clear();
        const int64_t sequence = shape_.sequence_of(first, row, replica_);
        if (sequence < count) fill(sequence, sample_);
        rows_.put(row, sample_);
    }
}

SequenceBatch::Labels SequenceBatch::labels(int64_t row) const {
    Labels counted;
    for (const float weight : rows_.loss_gradients(row)) {
        counted.count += weight > 0 ? 1 : 0;
        counted.weight += static_cast<double>(weight);
    }
    return counted;
}

}  // namespace vocabpipe
