// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/config/fields.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The parts of model_fields(), in this order.

namespace vocabpipe {

/// Sizes, and the parts by which Megatron's flags describe a model.
[[nodiscard]] std::vector<ModelField> size_fields(ModelConfig& model);
[[nodiscard]] std::vector<ModelField> expert_fields(ModelConfig& model);
/// Adapters that a run gives the model.
[[nodiscard]] std::vector<ModelField> adapter_fields(ModelConfig& model);
/// What a family sets, where its files say otherwise at most by a key. A new property without a
/// flag belongs here.
[[nodiscard]] std::vector<ModelField> family_fields(ModelConfig& model);
/// What a run or a program that generates says of a model.
[[nodiscard]] std::vector<ModelField> run_fields(ModelConfig& model);

/// A member that a family sets and no flag does.
template <typename Value>
[[nodiscard]] ModelField field_of(std::string_view member, Value* value, std::string key = {}) {
    return {.member = member, .key = std::move(key), .flag = {.value = value}};
}

/// "layers 0, 2"; "" for none.
template <typename Has>
[[nodiscard]] std::string layers_text(const ModelConfig& model, const Has& has) {
    std::string layers;
    for (int i = 0; i < model.num_layers; ++i) {
        if (has(i)) layers += (layers.empty() ? "layers " : ", ") + std::to_string(i);
    }
    return layers;
}

}  // namespace vocabpipe
