// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/model_config_file.hpp"

#include "src/model/config_json/model_config_json.hpp"
#include "src/model/parameters.hpp"
#include "src/support/input_file.hpp"
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/model_tensors.hpp"
#include "src/train/checkpoint/training_state.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace vocabpipe {

std::string model_config_path(const std::string& path_or_folder) {
    std::error_code ignored;
    const bool folder = std::filesystem::is_directory(path_or_folder, ignored);
    return folder ? path_or_folder + "/" + std::string(kConfigFile) : path_or_folder;
}

ModelConfig load_model_config(const std::string& path_or_folder) {
    const std::string path = model_config_path(path_or_folder);
    ModelConfig config = parse_model_config(InputFile(path).text(), path);
    if (config.mtp_num_layers == 0) return config;
    std::error_code ignored;
    for (const std::string_view weights : {kModelFile, kModelIndex}) {
        if (!std::filesystem::exists(path_or_folder + "/" + std::string(weights), ignored))
            continue;
        leave_out_missing_depths(TensorFolder(path_or_folder), config);
        break;
    }
    return config;
}

void leave_out_missing_depths(const TensorFolder& folder, ModelConfig& config) {
    if (config.mtp_num_layers == 0) return;
    const std::string layer = layer_prefix(config, config.num_layers);
    const std::string of_body = layer.substr(body_prefix(config).size());
    const bool has_depths = std::ranges::any_of(folder.tensors(), [&](const auto& tensor) {
        return tensor.first.starts_with(layer) || tensor.first.starts_with(of_body);
    });
    if (!has_depths) config.mtp_num_layers = 0;
}

}  // namespace vocabpipe
