// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace vocabpipe::testing {

/// What transformers saves of a small model.
struct TransformersFiles {
    std::string model_type;
    std::string config;   ///< config.json
    std::string tensors;  ///< of model.safetensors: "NAME SHAPE", a line each, by name
};

/// Some of every family, from transformers_files.jsonl, which transformers_files.py wrote.
[[nodiscard]] const std::vector<TransformersFiles>& transformers_files();

}  // namespace vocabpipe::testing
