// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V3's mixture of experts (arXiv 2412.19437, section 2.1.2) after the first layers. The
// router chooses by sigmoid scores and a correction bias, inside groups; experts that all tokens
// share have no gate.
#pragma once

#include "src/model/config_json/config_values.hpp"
#include "src/model/tensor_names.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

namespace vocabpipe {

/// transformers' defaults for keys of the mixture, which its classes do not share.
struct GroupedMixtureDefaults {
    int64_t experts = 0;  ///< 0: the key must be there; likewise per_token and shared
    int64_t per_token = 0;
    int64_t shared = 0;
    int64_t expert_size = 0;
    bool normalize = false;
    double scaling = 1;
    int64_t groups = 1;
    int64_t top_groups = 1;
    int64_t dense_layers = 0;  ///< layers before all with experts
};

void set_grouped_mixture(ModelConfig& c);
void read_grouped_mixture(const ConfigValues& file, const GroupedMixtureDefaults& defaults,
                          ModelConfig& c);
void print_grouped_mixture(const ModelConfig& c, nlohmann::ordered_json& json);
/// UsageError for layers without experts after one with experts, and for a shared expert that is no
/// multiple of an expert.
void check_grouped_mixture(const ModelConfig& c);
void name_grouped_mixture(TensorNames& names);

}  // namespace vocabpipe
