// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace vocabpipe {

/// What context ranks exchange for attention (--cp-comm-type, with Megatron-LM's names).
enum class ContextForm : uint8_t {
    /// Every rank gathers the keys and values of all tokens, and attends with its own queries; in
    /// the backward it adds up what all ranks have found for its keys and values.
    allgather,
    /// Ulysses (Jacobs et al. 2023, arXiv 2309.14509): ranks exchange tokens for heads, so that
    /// each has all tokens of a part of the heads, and back. C must divide the key/value heads.
    a2a,
};
[[nodiscard]] std::string_view to_string(ContextForm form);
/// Takes Transformer Engine's all_gather, too. Throws UsageError for another name.
[[nodiscard]] ContextForm context_form_from(std::string_view name);

/// How context ranks exchange what attention needs.
struct ContextExchange {
    ContextForm form = ContextForm::allgather;  ///< works with any number of heads
    /// Panels of heads that travel one after the other: attention of a panel runs while the next
    /// one travels, so that all but an eighth can be hidden. Fewer where the key/value heads do not
    /// divide into so many. Bits do not depend on it.
    int panels = 8;
    /// Member by member.
    friend bool operator==(const ContextExchange&, const ContextExchange&) = default;
};

}  // namespace vocabpipe
