// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/planned_trainer.hpp"

namespace vocabpipe {

/// What kernels of a year do differently from those of other years, on every device. The figures
/// were fitted to published runs (docs/planning-accuracy.md).
struct KernelRates {
    /// Attention keeps its scores in memory and moves so many bytes per score, forward and
    /// backward, besides four and eight FLOPs per score and element of a head. 0: it does not
    /// (FlashAttention).
    double score_bytes_forward = 0;
    double score_bytes_backward = 0;
    /// Bytes per score from F to the backward: the softmax, and dropout's mask and output.
    double score_bytes_saved = 0;
    /// Whether attention is that of DeviceSpec::attention_efficiency; else FlashAttention 2.
    bool newest_attention = false;
    /// Times that norms, residuals, activations and positions move the bytes that one kernel each
    /// would move: kernels that are not fused write and read what lies between.
    double residual_moves = 1, activation_moves = 1;
    /// Share of DeviceSpec::link_efficiency that exchanges of tensor ranks reach.
    double tensor_exchange = 1;
    /// Share of these exchanges that products hide.
    double tensor_overlap = 0;
    /// Whether replicas add up gradients while passes go on, and gather weights while the passes of
    /// the next step do (Megatron's --overlap-grad-reduce and --overlap-param-gather). Else they do
    /// so after the last pass.
    bool overlaps_replicas = false;
};

[[nodiscard]] const KernelRates& kernel_rates(KernelYear year);

}  // namespace vocabpipe
