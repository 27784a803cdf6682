// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/heads.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "vocabpipe/attention_shape.hpp"

#include <cstdint>

namespace vocabpipe {

/// Attention over sequences that C context ranks share, by Ulysses (ContextForm::a2a): ranks
/// exchange their tokens of all heads for all tokens of their heads, attend as one rank does, and
/// exchange the results back. Panels of heads travel one after the other, and attention of a panel
/// runs while the next one travels. The backward exchanges again what it needs, because keeping it
/// would take more memory. Every head has the bits of one rank, in F and in the backward.
///
/// `shape`: of the rank's heads before the exchange, and its own tokens; C panels divide the
/// key/value heads. qkv (N, qkv_columns), heads and dheads (N, output_columns), dqkv of qkv's
/// shape: of the rank's N tokens. log_sum_exp and the gradients of sinks (N, heads): the same bytes
/// as (C N, heads / C), which is how they are used. All use pass.scratch.workspace.
struct ExchangedHeads {
    kernels::AttentionShape shape;
    int panels = 1;

    void forward(const StagePass& pass, ConstTensor qkv, const HeadSinks& sinks, Tensor heads,
                 Tensor log_sum_exp) const;
    void backward(const StagePass& pass, ConstTensor dheads, ConstTensor qkv,
                  const HeadSinks& sinks, ConstTensor heads, ConstTensor log_sum_exp,
                  Tensor dqkv) const;
    /// dsinks (1, heads): the sum [and dsinks] of the sinks' gradients that backward() made.
    static void sum_sinks(const StagePass& pass, ConstTensor gradients, Tensor dsinks);
    /// Bytes of the workspace that forward() and backward() need.
    [[nodiscard]] int64_t workspace_bytes(const ScratchFor& use) const;
};

}  // namespace vocabpipe
