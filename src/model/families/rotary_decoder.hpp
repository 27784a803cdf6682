// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/tensor_names.hpp"
#include "vocabpipe/model_config.hpp"

#include <string_view>

// Shared code of Llama and the families derived from it.

namespace vocabpipe {

/// RMSNorm with an epsilon of 1e-6, rotary positions, SwiGLU, no biases.
void set_rotary_decoder(ModelConfig& config);

/// Llama's names, which most families kept: q, k, v and gate, up in tensors of their own.
[[nodiscard]] TensorNames rotary_decoder_names();

/// Tensors of rotary frequencies, which old files have.
inline constexpr std::string_view kRotaryFrequencies = ".rotary_emb.inv_freq";

}  // namespace vocabpipe
