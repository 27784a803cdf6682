// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/model_config_file.hpp"

#include "src/model/config_json/model_config_json.hpp"
#include "src/support/input_file.hpp"
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/training_state.hpp"

#include <filesystem>
#include <system_error>

namespace vocabpipe {

std::string model_config_path(const std::string& path_or_folder) {
    std::error_code ignored;
    const bool folder = std::filesystem::is_directory(path_or_folder, ignored);
    return folder ? path_or_folder + "/" + std::string(kConfigFile) : path_or_folder;
}

ModelConfig load_model_config(const std::string& path_or_folder) {
    const std::string path = model_config_path(path_or_folder);
    return parse_model_config(InputFile(path).text(), path);
}

}  // namespace vocabpipe
