// SPDX-License-Identifier: Apache-2.0
#include "src/tool/plan/trainer_flags.hpp"

#include "src/support/names_of.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe::tool {

namespace {

/// The type of gradients by its name.
FlagText gradient_type(PlannedTrainer& trainer) {
    return {.set =
                [&trainer](const std::vector<std::string>& words) {
                    trainer.gradients = words.back() == "bf16" ? DType::bf16 : DType::fp32;
                },
            .get = [&trainer] { return std::string(trainer.gradient_type()); }};
}

}  // namespace

FlagGroup trainer_flags(PlannedTrainer& trainer) {
    return {
        .title = "Trainer to plan for",
        .flags = {
            {.names = "--kernels",
             .value = named(&trainer.kernels, kernel_year_from),
             .help = "Kernels of that year: 2022 keeps the scores of attention in memory, 2023 has "
                     "FlashAttention 2, 2025 the newest ones of the device",
             .unit = "YEAR",
             .choices = names_of({KernelYear::y2022, KernelYear::y2023, KernelYear::y2025})},
            {.names = "--fp8",
             .value = &trainer.fp8,
             .help = "The products of layers take operands of 8 bits"},
            {.names = "--grad-dtype",
             .value = gradient_type(trainer),
             .help = "Type in which gradients are kept and added up",
             .choices = {"fp32", "bf16"}},
            {.names = "--gradient-reduction",
             .value = named(&trainer.reduction, gradient_reduction_from),
             .help = "How replicas add up gradients: rings as NCCL's, or train_gpt's all_to_all, "
                     "whose bits do not depend on their number",
             .choices = names_of({GradientReduction::ring, GradientReduction::all_to_all})},
            {.names = "--sequence-parallel,!--no-sequence-parallel",
             .value = &trainer.sequence_parallel,
             .help = "Tensor ranks share the rows of norms and residuals (train_gpt: always)"},
            {.names = "--parallel-loss,!--no-parallel-loss",
             .value = &trainer.parallel_loss,
             .help = "Tensor ranks share the loss, else each gathers all logits (train_gpt: "
                     "always)"},
            {.names = "--overlap-p2p-communication,!--no-overlap-p2p-communication",
             .value = &trainer.overlap_messages,
             .help =
                 "Passes go on while messages of the pipeline travel; Megatron's 1F1B does not"},
            {.names = "--blocking-exchanges",
             .value = &trainer.blocking_exchanges,
             .help = "Products wait for what tensor, context and expert ranks exchange, and "
                     "exchanges for products: what overlap saves"},
            {.names = "--exchange-percent",
             .value = &trainer.exchange_percent,
             .help = "Share of F, B and I in which a rank waits for its tensor, context or expert "
                     "ranks, where it has some: the two passes of a pair hide it behind each "
                     "other; 0: they run one after the other, as in train_gpt on GPUs",
             .range = between(0, 100)},
            {.names = "--free-vocabulary-collectives",
             .value = &trainer.free_vocabulary_collectives,
             .help = "Collectives of vocabulary passes cost nothing: what they cost (no run leaves "
                     "them out)"},
            {.names = "--recompute-num-layers",
             .value = &trainer.recompute_layers,
             .help = "Layers that full recomputation makes at a time, whose inputs are kept; 0: "
                     "those of a stage, as train_gpt does",
             .range = between(0, INT32_MAX)},
            {.names = "--zero-stage",
             .value = &trainer.zero,
             .help = "What replicas share: 0 nothing, 1 the optimizer's state, 2 gradients of "
                     "layers, too, 3 their weights, too (FSDP): stages are whole for each use or "
                     "once in a step, and gathered as far ahead as is fastest in the memory",
             .range = between(0, 3)},
        }};
}

}  // namespace vocabpipe::tool
