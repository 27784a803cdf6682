// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/flag.hpp"
#include "src/train/data/data_options.hpp"

#include <vector>

namespace vocabpipe::tool {

/// The data flags of train_gpt, for commands that read the training data in stream order.
[[nodiscard]] inline std::vector<Flag> training_data_flags(DataOptions& o) {
    return {{.names = "--data-path",
             .value = &o.path,
             .help = "Tokens: a Megatron prefix, llm.c shards, or raw tokens (--data-format); or "
                     "the WEIGHT NAME pairs of a blend",
             .unit = "PATH",
             .required = true},
            {.names = "--split",
             .value = &o.split,
             .help = "Proportions of training, validation and test data, as the run has them: only "
                     "training data is looked at",
             .unit = "A,B,C",
             .unset = "all of it is training data"},
            {.names = "--data-format",
             .value = &o.format,
             .help = "Format of the data files; raw files hold only tokens",
             .unit = "NAME",
             .choices = {"auto", "raw-u8", "raw-u16", "raw-u32"}}};
}

}  // namespace vocabpipe::tool
