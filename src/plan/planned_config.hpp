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

}  // namespace vocabpipe
