// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/checkpoint/tensor_folder.hpp"
#include "vocabpipe/model_config.hpp"

#include <string>

namespace vocabpipe {

/// The path itself, or of config.json if it is a folder.
[[nodiscard]] std::string model_config_path(const std::string& path_or_folder);

/// parse_model_config() of that file, and in a folder with weights leave_out_missing_depths().
[[nodiscard]] ModelConfig load_model_config(const std::string& path_or_folder);

/// Sets mtp_num_layers to 0 if the folder has no tensor of depths: transformers drops these layers
/// when it saves a model, and keeps their number in config.json.
void leave_out_missing_depths(const TensorFolder& folder, ModelConfig& config);

/// InputFileError with key, both values and the flag if the run has another model than the file.
void check_same_model(const ModelConfig& file, const std::string& path, const ModelConfig& run);

}  // namespace vocabpipe
