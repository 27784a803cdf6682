// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/plan.hpp"

namespace vocabpipe::testing {

/// A GPT small enough to evaluate in milliseconds, with a vocabulary that matters.
inline PlannedModel small_gpt() {
    return {.name = "small",
            .config = {.num_layers = 8,
                       .hidden_size = 1024,
                       .ffn_hidden_size = 4096,
                       .num_attention_heads = 16,
                       .max_position_embeddings = 2048,
                       .vocab_size = 64000,
                       .tied = false}};
}

inline PlanOptions small_plan() {
    PlanOptions options;
    options.model = small_gpt();
    options.device = load_device("a100");
    options.gpus = 4;
    options.seq_length = 1024;
    options.global_batch_size = 16;
    return options;
}

}  // namespace vocabpipe::testing
