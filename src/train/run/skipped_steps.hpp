// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/log/run_log.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <cstdint>

namespace vocabpipe {

/// Steps of a run that changed no weight: the loss or a gradient was not finite, or no token had a
/// label. The same on every rank.
class SkippedSteps {
public:
    SkippedSteps(const TrainOptions& options, RunLog& log) : options_(options), log_(log) {}

    /// After every step, in which so many tokens of all replicas had a label. False: the run must
    /// end, for no later step can be right, or because that was asked for; then throw_found() says
    /// why. Collective where the step is not finite.
    [[nodiscard]] bool add(TrainedRank& rank, const StepResult& result, int64_t counted_tokens);
    /// AgreedError for what add() found.
    [[noreturn]] void throw_found() const;
    /// A run of `steps` that skips steps to its end has diverged, or its data has no labels:
    /// AgreedError. Single ones are noted.
    void report(int64_t steps) const;

private:
    const TrainOptions& options_;
    RunLog& log_;
    int64_t skipped_ = 0;
    int64_t unlabelled_ = 0;  ///< of them those without a label
    int64_t in_a_row_ = 0;    ///< of them those at the end
    std::string found_;       ///< that ends the run
};

}  // namespace vocabpipe
