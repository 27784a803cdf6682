// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/tensor.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace vocabpipe {

/// The kernels of a trainer, by the year in which trainers had them.
enum class KernelYear : uint8_t {
    y2022,  ///< scores of attention in memory, fused softmax; exchanges of tensor ranks in the open
    y2023,  ///< FlashAttention 2 and fused norms; exchanges of tensor ranks in the open
    y2025,  ///< newest attention of the device; products hide most of what tensor ranks exchange
};
[[nodiscard]] std::string_view to_string(KernelYear year);
/// "2022", "2023" or "2025". Throws UsageError naming the valid ones.
[[nodiscard]] KernelYear kernel_year_from(std::string_view name);

/// How replicas add up their gradients.
enum class GradientReduction : uint8_t {
    ring,        ///< NCCL's rings: the GPUs of a node use all its adapters for one sum
    all_to_all,  ///< this library's: bits do not depend on the number of replicas
};
[[nodiscard]] std::string_view to_string(GradientReduction reduction);
/// Throws UsageError naming the valid ones.
[[nodiscard]] GradientReduction gradient_reduction_from(std::string_view name);

/// Bytes per logit of a loss that is written with a framework's operators: logits in 16 and 32
/// bits, log-probabilities, and gradients of both (fitted to published runs,
/// docs/planning-accuracy.md).
inline constexpr int kUnfusedLossBytes = 27;

/// What differs between trainers that run the same steps on the same devices. A profile was
/// measured with one trainer, so it has none of this.
struct PlannedTrainer {
    KernelYear kernels = KernelYear::y2025;  ///< the newest are what people start with
    bool fp8 = false;  ///< products of layers take operands of 8 bits (Megatron's --fp8-format)
    DType gradients = DType::fp32;  ///< summed up in this type; bf16 where Megatron has
                                    ///< --grad-reduce-in-bf16
    /// Default ring: what NCCL does, and so every other trainer.
    GradientReduction reduction = GradientReduction::ring;
    /// Whether tensor ranks share rows of the residual stream, as train_gpt's always do. Else each
    /// holds all of them, and norms and residuals take all tokens.
    bool sequence_parallel = true;
    /// Whether tensor ranks share the loss as they share the logits. Else each gathers the logits
    /// of all rows, and the loss keeps kUnfusedLossBytes of each.
    bool parallel_loss = true;
    /// Whether passes go on while the messages of the pipeline travel. Megatron's 1F1B waits for
    /// what it sends (--no-overlap-p2p-communication for interleaved schedules).
    bool overlap_messages = true;
    /// Whether products wait for what tensor, context and expert ranks exchange, and exchanges for
    /// products (train_gpt's --blocking-exchanges): what overlap saves.
    bool blocking_exchanges = false;
    /// Share of F, B and I in which a rank waits for its tensor, context or expert ranks, in
    /// percent: the two passes of an overlapped pair hide it behind each other
    /// (CostModel::exchange_ns()). 0: they run one after the other, as train_gpt's do on GPUs.
    int exchange_percent = 0;
    /// Whether collectives of vocabulary passes (is_of_pipeline()) cost nothing, which no run does:
    /// what they cost.
    bool free_vocabulary_collectives = false;
    /// Layers that a full R makes at a time (Megatron's --recompute-num-layers of the uniform
    /// method): their inputs stay in memory. 0: all of a stage at once, as train_gpt does.
    int recompute_layers = 0;
    /// ZeRO's stage: what a replica holds of its share only. 0: nothing, 1: the optimizer's state,
    /// 2: gradients of layers, too; 3 (FSDP): also their weights, both stage by stage
    /// (Candidate::zero).
    int zero = 1;

    /// "fp32" or "bf16".
    [[nodiscard]] std::string_view gradient_type() const {
        return gradients == DType::bf16 ? "bf16" : "fp32";
    }
    /// Member by member.
    friend bool operator==(const PlannedTrainer&, const PlannedTrainer&) = default;
};
/// "kernels of 2025, gradients in fp32 over rings, ZeRO 1", and what else differs from the default.
[[nodiscard]] std::string to_string(const PlannedTrainer& trainer);

}  // namespace vocabpipe
