// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

#include <string>

namespace vocabpipe {

/// The file itself, or config.json of the folder.
[[nodiscard]] std::string model_config_path(const std::string& path_or_folder);

/// parse_model_config() of a file, or of config.json in a folder.
[[nodiscard]] ModelConfig load_model_config(const std::string& path_or_folder);

/// InputFileError naming key, both values and the flag, if the run's model is another one.
void check_same_model(const ModelConfig& file, const std::string& path, const ModelConfig& run);

}  // namespace vocabpipe
