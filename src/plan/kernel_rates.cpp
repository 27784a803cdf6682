// SPDX-License-Identifier: Apache-2.0
#include "src/plan/kernel_rates.hpp"

#include "src/support/names_of.hpp"

#include <string>

namespace vocabpipe {

std::string_view to_string(KernelYear year) {
    constexpr std::string_view kNames[] = {"2022", "2023", "2025"};
    return kNames[static_cast<size_t>(year)];
}

KernelYear kernel_year_from(std::string_view name) {
    return value_named("--kernels", name,
                       {KernelYear::y2022, KernelYear::y2023, KernelYear::y2025});
}

std::string_view to_string(GradientReduction reduction) {
    constexpr std::string_view kNames[] = {"ring", "all_to_all"};
    return kNames[static_cast<size_t>(reduction)];
}

GradientReduction gradient_reduction_from(std::string_view name) {
    return value_named("--gradient-reduction", name,
                       {GradientReduction::ring, GradientReduction::all_to_all});
}

std::string to_string(const PlannedTrainer& trainer) {
    std::string text = "kernels of " + std::string(to_string(trainer.kernels)) +
                       (trainer.fp8 ? " with fp8" : "") + ", gradients in " +
                       std::string(trainer.gradient_type()) + " over " +
                       (trainer.reduction == GradientReduction::ring ? "rings" : "all_to_all") +
                       ", ZeRO " + std::to_string(trainer.zero);
    if (!trainer.sequence_parallel) text += ", no sequence parallelism";
    if (!trainer.parallel_loss) text += ", no parallel loss";
    if (!trainer.overlap_messages) text += ", passes wait for messages";
    if (trainer.blocking_exchanges) text += ", exchanges block";
    if (trainer.exchange_percent > 0) {
        text += ", pairs hide exchanges of " + std::to_string(trainer.exchange_percent) + " %";
    }
    if (trainer.free_vocabulary_collectives) text += ", vocabulary collectives free";
    if (trainer.recompute_layers > 0) {
        text +=
            ", full recomputation of " + std::to_string(trainer.recompute_layers) + " at a time";
    }
    return text;
}

const KernelRates& kernel_rates(KernelYear year) {
    static constexpr KernelRates k2022{
        .score_bytes_forward = 9, .score_bytes_backward = 33, .score_bytes_saved = 5};
    static constexpr KernelRates k2023{
        .residual_moves = 2.3, .activation_moves = 3.3, .tensor_exchange = 0.90};
    static constexpr KernelRates k2025{
        .newest_attention = true, .tensor_overlap = 0.77, .overlaps_replicas = true};
    switch (year) {
        case KernelYear::y2022:
            return k2022;
        case KernelYear::y2023:
            return k2023;
        case KernelYear::y2025:
            break;
    }
    return k2025;
}

}  // namespace vocabpipe
