// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace vocabpipe {

/// Evaluation between the steps of a run; the comments name the flags of train_gpt.
struct EvaluationOptions {
    int64_t interval = 1000;           // --eval-interval, steps; Megatron's default
    int64_t iters = 100;               // --eval-iters, global batches at most; Megatron's default
    std::string multiple_choice_path;  // --multiple-choice-path; empty: none
    bool skip_train = false;           // --skip-train, evaluate once and end
};

}  // namespace vocabpipe
