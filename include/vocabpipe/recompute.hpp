// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace vocabpipe {

/// What the backward makes again (R) instead of keeping it from the forward on (Korthikanti et al.
/// 2022; Megatron's --recompute-granularity).
enum class Recompute : uint8_t {
    none,
    selective,  ///< what is cheap to make and large: outputs of norms and activations
    full,       ///< everything but the stage's input
};

[[nodiscard]] std::string_view to_string(Recompute recompute);
/// Throws UsageError naming the granularities and the nearest one.
[[nodiscard]] Recompute recompute_from(std::string_view name);

}  // namespace vocabpipe
