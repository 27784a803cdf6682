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

    /// Call after every step; `counted_tokens` of all replicas had a label. False if the run must
    /// end, because weights are not finite or the options ask for it; then throw_found() says why.
    /// Collective if the step is not finite.
    [[nodiscard]] bool add(TrainedRank& rank, const StepResult& result, int64_t counted_tokens);
    /// Throws AgreedError for what add() found.
    [[noreturn]] void throw_found() const;
    /// Call at the end of a run of `steps` steps. AgreedError if its last steps were skipped (it
    /// has diverged) or none had labels; single skipped steps are logged.
    void report(int64_t steps) const;

private:
    const TrainOptions& options_;
    RunLog& log_;
    int64_t skipped_ = 0;
    int64_t unlabelled_ = 0;  ///< of skipped_, those without a label
    int64_t in_a_row_ = 0;    ///< of skipped_, those at the end
    std::string found_;       ///< the reason to end the run
};

}  // namespace vocabpipe
