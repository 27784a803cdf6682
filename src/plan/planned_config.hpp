// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/plan.hpp"

namespace vocabpipe {

/// The model's configuration with the sequences and the type of the plan's steps.
[[nodiscard]] inline ModelConfig planned_config(const PlanOptions& options) {
    ModelConfig config = options.model.config;
    config.seq_length = options.seq_length;
    config.dtype = options.profile ? options.profile->sizes.dtype : DType::bf16;
    return config;
}

/// The stage of a candidate that has the depths of multi-token prediction; -1: there are none.
[[nodiscard]] inline int mtp_stage(const PlanOptions& options, const Candidate& candidate) {
    if (options.model.config.mtp_num_layers == 0) return -1;
    return options.mtp_stage >= 0 ? options.mtp_stage
                                  : static_cast<int>(candidate.layers_per_stage.size()) - 1;
}

}  // namespace vocabpipe
