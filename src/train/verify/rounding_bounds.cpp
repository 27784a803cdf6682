// SPDX-License-Identifier: Apache-2.0
#include "src/train/verify/rounding_bounds.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace vocabpipe {

namespace {

/// Whether every stage adds the gradients of its weights in the order of the microbatches, as one
/// rank does.
bool adds_in_order(const Schedule& schedule) {
    std::vector<uint32_t> last(static_cast<size_t>(schedule.stages), 0);
    for (const std::vector<Pass>& passes : schedule.passes) {
        uint32_t output = 0;
        uint32_t input = 0;
        for (const Pass& pass : passes) {
            uint32_t* before = nullptr;
            if (pass.op == Op::B || pass.op == Op::W) {
                before = &last[static_cast<size_t>(pass.stage)];
            } else if (pass.op == Op::T) {
                before = &output;
            } else if (pass.op == Op::G) {
                before = &input;
            }
            if (before == nullptr) continue;
            if (pass.microbatch < *before) return false;
            *before = pass.microbatch;
        }
    }
    return true;
}

/// docs/numerics.md, "what the bits depend on".
bool has_bits_of_one_rank(const TrainingPlan& plan) {
    if (plan.mesh().slices() > 1) return false;
    return std::ranges::all_of(plan.steps(), [](const StepPlan& step) {
        return step.schedule.output.owners().size() == 1 &&
               step.schedule.input.owners().size() == 1 && adds_in_order(step.schedule);
    });
}

}  // namespace

double RoundingBounds::of_scalar(double expected, int64_t n) const {
    return relative * std::abs(expected) * static_cast<double>(n);
}

double RoundingBounds::of_gradient(double norm, double all, int64_t tensors, int64_t n) const {
    return relative * static_cast<double>(n) *
           (norm + all / std::sqrt(static_cast<double>(tensors)));
}

double RoundingBounds::of_weights(int64_t elements, double gradient, double moved,
                                  double weights) const {
    if (to_the_bit) return 0;
    // A step of AdamW moves a weight by at most about the learning rate, in the direction of the
    // gradient. Only of elements smaller than the gradient's error can the direction differ.
    const double turned = std::sqrt(static_cast<double>(elements) * std::min(1.0, gradient));
    return 2 * moved * turned + 2 * weight_rounding * weights;
}

RoundingBounds rounding_bounds(const TrainingPlan& plan) {
    if (has_bits_of_one_rank(plan)) return {.to_the_bit = true};
    const ModelConfig& model = plan.options().model;
    const double fp32 = std::ldexp(1.0, -24);
    const double run = model.dtype == DType::bf16 ? std::ldexp(1.0, -9) : fp32;
    // Roundings of a layer to the run's type that the next one reads, there and back.
    constexpr double kRoundings = 12;
    const double roundings = kRoundings * static_cast<double>(model.num_layers + 1);
    const auto longest_sum =
        static_cast<double>(std::max({model.vocab_size, model.ffn_hidden_size, model.hidden_size,
                                      model.seq_length * plan.options().global_batch_size}));
    // Rounding errors are independent, so that n of them add up to sqrt(n). The factor is room for
    // sums that cancel; docs/verification.md has what was measured.
    constexpr double kRoom = 4;
    return {.to_the_bit = false,
            .relative = kRoom * (run * std::sqrt(roundings) + fp32 * std::sqrt(longest_sum)),
            .weight_rounding = model.dtype == DType::bf16 ? run : fp32};
}

}  // namespace vocabpipe
