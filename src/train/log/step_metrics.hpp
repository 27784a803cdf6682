// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/optimizer_step.hpp"
#include "vocabpipe/preference_step.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace vocabpipe {

/// Results of one step; the keys of the metrics file are the member names.
struct StepMetrics {
    int64_t step = 0;
    double loss = 0;  ///< mean over the counted tokens
    double grad_norm = 0;
    double lr = 0;
    double tokens_per_second = 0;
    double step_seconds = 0;
    bool updated = true;            ///< false: the step changed no weight
    int64_t global_batch_size = 0;  ///< sequences of this step
    int64_t consumed_samples = 0;   ///< sequences of the data so far, over all runs
    int64_t consumed_tokens = 0;    ///< the same in tokens
    int64_t skipped_steps = 0;      ///< steps without an update, of this run
    double elapsed_seconds = 0;     ///< of this run, from its start
    /// moe_aux_loss, moe_z_loss, moe_max_load; for models with experts.
    std::optional<RouterResult> routers = {};
    /// mtp_1_loss and so on, of each depth of multi-token prediction (StepResult::depth_losses).
    std::vector<double> depth_losses = {};
    std::optional<PreferenceMeans> pairs = {};  ///< rewards/accuracies and so on; none: no pairs
};

/// Results of an evaluation, a line of its own; none: not evaluated.
struct EvaluationMetrics {
    int64_t step = 0;
    std::optional<double> eval_loss, eval_ppl;  ///< nats; e^eval_loss
    std::optional<double> choice_accuracy;      ///< from 0 to 1
    double eval_seconds = 0;
};

}  // namespace vocabpipe
