// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/skipped_steps.hpp"

#include "src/step/optimizer/non_finite.hpp"
#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

bool SkippedSteps::add(TrainedRank& rank, const StepResult& result, int64_t counted_tokens) {
    in_a_row_ = result.updated ? 0 : in_a_row_ + 1;
    skipped_ += result.updated ? 0 : 1;
    if (counted_tokens == 0) {
        ++unlabelled_;
        log_.print_line("step " + std::to_string(rank.position().step) +
                        ": no labels: --eod-mask-loss or loss weights of 0 leave none; the step is "
                        "skipped");
        return true;
    }
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
    throw AgreedError(ExitCode::wrong_values, found_);
}

void SkippedSteps::report(int64_t steps) const {
    if (skipped_ == 0) return;
    const std::string some =
        std::to_string(skipped_) + " of " + std::to_string(steps) + " steps were skipped because ";
    if (unlabelled_ == skipped_) {
        const std::string text = some + "no token had a label";
        if (unlabelled_ < steps) return log_.print_line(text);
        throw AgreedError(ExitCode::input_file,
                          text +
                              ": this run has trained nothing; check --eod-token-id and the loss "
                              "weights of the data, or leave out --eod-mask-loss");
    }
    const std::string text =
        some + "the loss or a gradient was not finite" +
        (unlabelled_ == 0 ? "" : ", or no token had a label (" + std::to_string(unlabelled_) + ")");
    if (in_a_row_ == 0) {
        log_.print_line(text);
        return;
    }
    throw AgreedError(ExitCode::wrong_values,
                      text + ", including the last " + std::to_string(in_a_row_) +
                          " in a row; the run has diverged; use a smaller --lr or --clip-grad, or "
                          "resume from an older step");
}

}  // namespace vocabpipe
