// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/model_config.hpp"
#include "src/model/parameters.hpp"
#include "src/train/checkpoint/safetensors.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

/// A logical parameter as Hugging Face's GPT-2 stores it.
struct Gpt2Tensor {
    std::string name;
    std::vector<int64_t> shape;
    /// Conv1D keeps [in, out], this program [out, in].
    bool transposed = false;
};

/// Of every logical parameter, by id.
[[nodiscard]] std::vector<Gpt2Tensor> gpt2_tensors(const ModelConfig& config);

/// What files carry besides weights: the causal masks of old ones, and the output weight beside the
/// embedding that it is tied to.
[[nodiscard]] bool is_no_weight_of(const std::string& name, const ModelConfig& config);

/// Of an optimizer's file, whose tensors are as this program holds them: [rows, cols].
[[nodiscard]] inline std::string exp_avg_name(const std::string& name) {
    return "exp_avg/" + name;
}
[[nodiscard]] inline std::string exp_avg_sq_name(const std::string& name) {
    return "exp_avg_sq/" + name;
}
[[nodiscard]] inline std::string master_name(const std::string& name) {
    return "master/" + name;
}

/// Tensors of model.safetensors in the run's type, and of optimizer.safetensors: two moments and,
/// in bf16 runs, fp32 master weights.
[[nodiscard]] std::vector<StoredTensor> model_file_tensors(const ModelConfig& config);
[[nodiscard]] std::vector<StoredTensor> optimizer_file_tensors(const ModelConfig& config);

}  // namespace vocabpipe
