// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/gpt2_tensors.hpp"

#include "src/model/parameters.hpp"

namespace vocabpipe {

namespace {

std::vector<int64_t> held_shape(const LogicalParameter& p) {
    // Only matrices decay; a matrix may have a single row.
    return p.weight_decay ? std::vector<int64_t>{p.rows, p.cols} : std::vector<int64_t>{p.cols};
}

}  // namespace

std::vector<Gpt2Tensor> gpt2_tensors(const ModelConfig& config) {
    std::vector<Gpt2Tensor> tensors;
    for (const LogicalParameter& p : logical_parameters(config)) {
        Gpt2Tensor t{.name = p.name, .shape = held_shape(p)};
        t.transposed = p.name.ends_with(".c_attn.weight") || p.name.ends_with(".c_proj.weight") ||
                       p.name.ends_with(".c_fc.weight");
        if (t.transposed) t.shape = {p.cols, p.rows};
        tensors.push_back(std::move(t));
    }
    return tensors;
}

bool is_no_weight_of(const std::string& name, const ModelConfig& config) {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
           (config.tied && name == "lm_head.weight");
}

std::vector<StoredTensor> model_file_tensors(const ModelConfig& config) {
    std::vector<StoredTensor> tensors;
    for (Gpt2Tensor& t : gpt2_tensors(config)) {
        tensors.push_back({.name = std::move(t.name),
                           .type = config.dtype == DType::bf16 ? StoredType::BF16 : StoredType::F32,
                           .shape = std::move(t.shape)});
    }
    return tensors;
}

std::vector<StoredTensor> optimizer_file_tensors(const ModelConfig& config) {
    std::vector<StoredTensor> tensors;
    for (const LogicalParameter& p : logical_parameters(config)) {
        tensors.push_back({.name = exp_avg_name(p.name), .shape = held_shape(p)});
        tensors.push_back({.name = exp_avg_sq_name(p.name), .shape = held_shape(p)});
        if (config.dtype != DType::fp32) {
            tensors.push_back({.name = master_name(p.name), .shape = held_shape(p)});
        }
    }
    return tensors;
}

}  // namespace vocabpipe
