// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/graph/operations.hpp"
#include "src/model/blocks/heads.hpp"

namespace vocabpipe {

kernels::AttentionShape SequenceShape::in_pass(const StagePass& pass) const {
    return rows == 0 ? shape_in_pass(shape, pass)
                     : with_sequences(shape, pass.microbatch.sequences, rows);
}

kernels::AttentionShape SequenceShape::in_use(const ScratchFor& use) const {
    return with_sequences(shape, use.sequences, rows == 0 ? use.seq_length : rows);
}

}  // namespace vocabpipe
