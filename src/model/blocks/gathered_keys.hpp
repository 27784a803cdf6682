// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/heads.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "vocabpipe/attention_shape.hpp"

#include <cstdint>

namespace vocabpipe {

/// Attention over sequences that context ranks share, each with its own queries (ContextForm::
/// allgather; TileLink, arXiv 2503.20313, section on attention, and Megatron-LM's all-gather form).
/// Keys and values of all ranks arrive panel by panel of heads, a sequence after the other, and
/// attention of a panel of a sequence runs while the next one travels. A query sees the keys that
/// it sees on one rank, so that each head's output has the same bits. In the backward they are
/// gathered again, because keeping them would take C times the memory, and each panel's gradients
/// leave for their owners, who add them up in the order of the ranks. Segments that no query of the
/// receiver sees do not travel.
///
/// `shape`: of the rank's heads, and its own tokens. `panels` divides the key/value heads. qkv (N,
/// qkv_columns), heads and dheads (N, output_columns), log_sum_exp and the gradients of sinks (N,
/// heads), dqkv of qkv's shape: of the rank's N tokens. All use pass.scratch.workspace.
struct GatheredKeys {
    kernels::AttentionShape shape;
    int panels = 1;

    void forward(const StagePass& pass, ConstTensor qkv, const HeadSinks& sinks, Tensor heads,
                 Tensor log_sum_exp) const;
    void backward(const StagePass& pass, ConstTensor dheads, ConstTensor qkv,
                  const HeadSinks& sinks, ConstTensor heads, ConstTensor log_sum_exp,
                  Tensor dqkv) const;
    /// Bytes of the workspace that forward() and backward() need.
    [[nodiscard]] int64_t workspace_bytes(const ScratchFor& use) const;
};

}  // namespace vocabpipe
