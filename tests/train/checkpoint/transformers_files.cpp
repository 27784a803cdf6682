// SPDX-License-Identifier: Apache-2.0
#include "tests/train/checkpoint/transformers_files.hpp"

#include "src/support/safetensors/format.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <fstream>

namespace vocabpipe::testing {

namespace {

std::vector<TransformersFiles> read_files() {
    std::ifstream file(VOCABPIPE_TRANSFORMERS_FILES);
    std::vector<TransformersFiles> models;
    for (std::string line; std::getline(file, line);) {
        const auto model = nlohmann::ordered_json::parse(line);
        const auto& config = model.at("config");
        std::string tensors = "\n";
        for (const auto& [name, shape] : model.at("tensors").items()) {
            tensors += name + " " + shape_text(shape.get<std::vector<int64_t>>()) + "\n";
        }
        models.push_back({config.at("model_type").get<std::string>(), config.dump(), tensors});
    }
    return models;
}

}  // namespace

const std::vector<TransformersFiles>& transformers_files() {
    static const std::vector<TransformersFiles> models = read_files();
    return models;
}

}  // namespace vocabpipe::testing
