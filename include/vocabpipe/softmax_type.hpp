// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace vocabpipe {

/// What the softmax of attention is over (Megatron's --softmax-type).
enum class SoftmaxType : uint8_t {
    vanilla,  ///< the scores of the keys that a query sees
    /// These, and a score of its own for each head, which the model learns and which has no value:
    /// attention sinks (Xiao et al. 2023, arXiv 2309.17453, section 3.3).
    learnable,
};
[[nodiscard]] std::string_view to_string(SoftmaxType type);
/// Throws UsageError for another name.
[[nodiscard]] SoftmaxType softmax_type_from(std::string_view name);

}  // namespace vocabpipe
