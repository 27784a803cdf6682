// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/skipped_steps.hpp"

#include "src/train/optimizer/non_finite.hpp"
#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

bool SkippedSteps::add(TrainedRank& rank, const StepResult& result) {
    in_a_row_ = result.updated ? 0 : in_a_row_ + 1;
    skipped_ += result.updated ? 0 : 1;
    if (result.finite()) return true;
    const NonFinite found = find_non_finite(rank.communicator(), rank.model(), rank.context());
    const std::string text = describe_non_finite(found, options_.model, rank.position().step,
                                                 result.loss, result.grad_norm);
    if (found.weights.empty() && !options_.stop_at_non_finite) {
        log_.print_line(text + "; the step is skipped");
        return true;
    }
    found_ = text + (found.weights.empty() ? "; the step changed no weight and is not saved"
                                           : "; no later step can be right; load an older one");
    return false;
}

void SkippedSteps::throw_found() const {
    throw AgreedError(ExitCode::not_finite, found_);
}

void SkippedSteps::report(int64_t steps) const {
    if (skipped_ == 0) return;
    const std::string text = std::to_string(skipped_) + " of " + std::to_string(steps) +
                             " steps were skipped because the loss or a gradient was not finite";
    if (in_a_row_ == 0) {
        log_.print_line(text);
        return;
    }
    throw AgreedError(ExitCode::not_finite,
                      text + ", including the last " + std::to_string(in_a_row_) +
                          " in a row; the run has diverged; use a smaller --lr or --clip-grad, or "
                          "resume from an older step");
}

}  // namespace vocabpipe
