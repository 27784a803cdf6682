// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace vocabpipe {

/// A model_type of transformers that this program does not compute.
struct OtherFamily {
    std::string_view name;
    std::string_view nearest;  ///< the most similar supported family
    std::string_view missing;  ///< what support would need in addition
};
[[nodiscard]] std::span<const OtherFamily> other_families();

}  // namespace vocabpipe
