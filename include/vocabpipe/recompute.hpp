// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vocabpipe {

/// What the backward makes again instead of keeping it from the forward on (Korthikanti et al.
/// 2022; Megatron's --recompute-granularity).
enum class Recompute : uint8_t {
    none,
    selective,  ///< what is cheap to make and large: outputs of norms and activations
    full,       ///< everything but the stage's input
};

}  // namespace vocabpipe
