// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Low-rank adapters (LoRA: Hu et al. 2021, arXiv 2106.09685) of linear layers, as PEFT has them:
/// y = x w^T + b + scale (x A^T) B^T with A (rank, in) and B (out, rank). A run with adapters
/// trains them alone. Names and defaults are those of PEFT's LoraConfig, where it has them.
struct LoraConfig {
    int64_t rank = 0;  ///< r, rows of A and columns of B; 0: no adapters
    float alpha = 0;   ///< the scale of adapters is alpha / rank; 0: alpha is the rank
    /// linear layers with adapters: the last parts of their names, such as q_proj; empty: all of
    /// the layers (PEFT's all-linear)
    std::vector<std::string> target_modules = {};

    /// What the product of an adapter is multiplied by.
    [[nodiscard]] float scale() const { return alpha == 0 ? 1 : alpha / static_cast<float>(rank); }
    /// Whether the linear layer of this name ("model.layers.0.self_attn.q_proj") has an adapter:
    /// its name is one of target_modules, or ends with a dot and one of them.
    [[nodiscard]] bool targets(std::string_view module) const;
    /// Member by member.
    bool operator==(const LoraConfig&) const = default;
};

}  // namespace vocabpipe
