// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace vocabpipe {

/// Activations that R recomputes for the backward instead of keeping them from the forward
/// (Korthikanti et al. 2022; Megatron's --recompute-granularity).
enum class Recompute : uint8_t {
    none,
    selective,  ///< large ones that are cheap to recompute: outputs of norms and activations
    full,       ///< everything but the stage's input
};

[[nodiscard]] std::string_view to_string(Recompute recompute);
/// Throws UsageError naming the granularities and the nearest one.
[[nodiscard]] Recompute recompute_from(std::string_view name);

}  // namespace vocabpipe
