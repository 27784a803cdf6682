// SPDX-License-Identifier: Apache-2.0
// A model with adapters is the model without them whose weights have their products added: what
// tests derive its right values from.
#pragma once

#include "tests/model/fp64_operators.hpp"
#include "vocabpipe/model_config.hpp"

namespace vocabpipe::testing {

/// The model with adapters of this rank on all of its linear layers; of experts' models on those of
/// attention.
[[nodiscard]] ModelConfig with_adapters(ModelConfig config, int64_t rank, float alpha);

/// The weights of the model without adapters: w + alpha / rank B A.
[[nodiscard]] Tensors folded(const ModelConfig& config, const Tensors& weights);

/// The gradients of the model with adapters, from those of the folded model: dw, and with
/// s = alpha / rank dA = s B^T dw, dB = s dw A^T.
[[nodiscard]] Tensors unfolded_gradients(const ModelConfig& config, const Tensors& weights,
                                         const Tensors& of_folded);

}  // namespace vocabpipe::testing
