// SPDX-License-Identifier: Apache-2.0
// Models as transformers names their tensors, with values that F32, BF16 and F16 hold exactly.
#pragma once

#include "src/model/config_json/model_config_json.hpp"
#include "src/model/families/families.hpp"
#include "src/train/checkpoint/tensor_folder.hpp"
#include "tests/train/checkpoint/raw_safetensors.hpp"
#include "tests/train/checkpoint/transformers_files.hpp"
#include "tests/train/data/temp_folder.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// Element i of a tensor in the file: a multiple of 1/64 that bf16 and fp16 hold exactly.
inline float value_of(const std::string& name, int64_t i) {
    const auto first = std::accumulate(name.begin(), name.end(), int64_t{0},
                                       [](int64_t sum, char c) { return sum * 31 % 1009 + c; });
    return static_cast<float>((first + 37 * i) % 101 - 50) / 64;
}

/// All but 0 are normal numbers in fp16.
inline uint16_t half_of(float value) {
    if (value == 0) return 0;
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t exponent = ((bits >> 23) & 0xffU) - 127 + 15;
    return static_cast<uint16_t>((bits >> 16 & 0x8000U) | exponent << 10 | (bits >> 13 & 0x3ffU));
}

inline RawTensor tensor(const std::string& name, const std::string& dtype,
                        const std::string& shape) {
    int64_t count = 1;
    std::istringstream sizes(shape.substr(1));
    for (std::string size; std::getline(sizes, size, ',');) count *= std::stoll(size);
    RawTensor t{name, dtype, shape, ""};
    for (int64_t i = 0; i < count; ++i) {
        const float value = value_of(name, i);
        const auto upper = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
        const uint16_t half = dtype == "F16" ? half_of(value) : upper;
        if (dtype == "F32") {
            t.bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
        } else {
            t.bytes.append(reinterpret_cast<const char*>(&half), sizeof half);
        }
    }
    return t;
}

/// Names and shapes that transformers gives the model, which keeps correction biases in fp32.
inline std::vector<RawTensor> weights_of(const TransformersFiles& model, const std::string& dtype) {
    std::vector<RawTensor> all;
    std::istringstream lines(model.tensors);
    for (std::string name, shape; lines >> name && std::getline(lines >> std::ws, shape);) {
        const bool bias = name.ends_with(".e_score_correction_bias");
        all.push_back(tensor(name, bias ? "F32" : dtype, shape));
    }
    return all;
}

inline void write_model(const std::string& folder, const std::string& config,
                        const std::vector<RawTensor>& weights) {
    std::filesystem::create_directories(folder);
    write_file(folder + "/config.json", config);
    write_file(folder + "/model.safetensors", raw_safetensors(weights));
}

/// What a folder has is these tensors and no others.
inline void expect_weights(const std::string& folder, const std::vector<RawTensor>& weights) {
    const TensorFolder found(folder);
    EXPECT_EQ(found.tensors().size(), weights.size());
    for (const RawTensor& want : weights) {
        const FoundTensor& tensor = found.tensors().at(want.name);
        EXPECT_EQ(name_of(tensor.tensor->type), want.dtype);
        EXPECT_EQ(shape_text(tensor.tensor->shape), want.shape);
        std::string bytes(tensor.tensor->end - tensor.tensor->begin, '\0');
        tensor.file->open().read(tensor.tensor->begin, std::as_writable_bytes(std::span(bytes)));
        EXPECT_EQ(bytes, want.bytes) << want.name;
    }
}

/// The family's name of a weight.
inline std::string weight_name(const ModelConfig& config, std::string TensorNames::*which) {
    return model_family(config.family).tensors.*which + ".weight";
}

inline ModelConfig config_of(const TransformersFiles& model) {
    ModelConfig config = parse_model_config(model.config, model.model_type);
    config.seq_length = config.max_position_embeddings;
    return config;
}

/// What a test's failure calls the model.
inline std::string label(const TransformersFiles& model) {
    return model.model_type + " " + model.config;
}

}  // namespace vocabpipe::testing
