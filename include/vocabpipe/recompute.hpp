// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace vocabpipe {

/// What F does not keep for the backward and R makes again; Megatron's --recompute-granularity.
enum class Recompute : uint8_t {
    none,       ///< F keeps everything, there is no R
    selective,  ///< what is large and cheap: outputs of norms and of the activation function
    full,       ///< everything but the stage's input
};

[[nodiscard]] std::string_view to_string(Recompute recompute);
/// Throws UsageError naming the granularities and the nearest one.
[[nodiscard]] Recompute recompute_from(std::string_view name);

}  // namespace vocabpipe
