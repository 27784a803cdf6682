// SPDX-License-Identifier: Apache-2.0
// Communication and buffers of the vocabulary layers for one microbatch: C0, C1 and C2 around S and
// T, the sum of embedded tokens, and the broadcast of their gradient.
#pragma once

#include "src/schedule/lower/step_graph.hpp"

#include <cstdint>

namespace vocabpipe::lowering {

/// Where embedded tokens are, the sum of the input shards' rows.
struct Embedded {
    uint32_t x = kNoBuffer;           ///< of stage 0
    uint32_t for_depths = kNoBuffer;  ///< on the last stage's rank, with predicted tokens
};
/// E on every input shard.
[[nodiscard]] Embedded add_embedding(StepGraph& step, uint32_t microbatch);

/// From X on the last stage's rank: C0 (broadcast of X), S, C1 (all-gather of statistics), softmax
/// factors, T and C2 (sum of the gradient of X). Returns the gradient of X on the last stage's
/// rank; kNoBuffer in evaluation, which ends with the factors.
[[nodiscard]] uint32_t add_output_layer(StepGraph& step, uint32_t microbatch, uint32_t x);

/// G on every input shard, from the gradient of stage 0's input and that of Embedded::for_depths,
/// which the last stage made; kNoBuffer: none.
void add_embedding_gradient(StepGraph& step, uint32_t microbatch, uint32_t dx, uint32_t of_depths);

}  // namespace vocabpipe::lowering
