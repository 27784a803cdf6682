// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/config/fields.hpp"

#include <vector>

// The parts of model_fields(), in this order.

namespace vocabpipe {

/// Sizes, and the parts by which Megatron's flags describe a model.
[[nodiscard]] std::vector<ModelField> size_fields(ModelConfig& model);
[[nodiscard]] std::vector<ModelField> expert_fields(ModelConfig& model);
/// What a family sets, where its files say otherwise at most by a key. A new property without a
/// flag belongs here.
[[nodiscard]] std::vector<ModelField> family_fields(ModelConfig& model);
/// What a run or a program that generates says of a model.
[[nodiscard]] std::vector<ModelField> run_fields(ModelConfig& model);

}  // namespace vocabpipe
