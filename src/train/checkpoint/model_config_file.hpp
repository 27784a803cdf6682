// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

#include <string>

namespace vocabpipe {

/// The path itself, or of config.json if it is a folder.
[[nodiscard]] std::string model_config_path(const std::string& path_or_folder);

/// parse_model_config() of that file.
[[nodiscard]] ModelConfig load_model_config(const std::string& path_or_folder);

/// InputFileError with key, both values and the flag if the run has another model than the file.
void check_same_model(const ModelConfig& file, const std::string& path, const ModelConfig& run);

}  // namespace vocabpipe
