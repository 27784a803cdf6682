// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/select_context.hpp"
#include "src/select/selection_state.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace vocabpipe {

/// Reads utilities of the samples from `first` on into `to`.
using ReadUtilities = std::function<void(int64_t first, std::span<int32_t> to)>;

/// Calls use(sample, utility) for the samples [first, last), in ascending order.
template <typename Use>
void for_each_utility(int64_t first, int64_t last, const ReadUtilities& utilities, const Use& use) {
    constexpr int64_t kAtOnce = 4096;
    std::vector<int32_t> block(kAtOnce);  // not on the stack, which may be small
    for (int64_t v = first; v < last; v += kAtOnce) {
        const auto some = std::span(block).first(static_cast<size_t>(std::min(kAtOnce, last - v)));
        utilities(v, some);
        for (size_t i = 0; i < some.size(); ++i) use(v + static_cast<int64_t>(i), some[i]);
    }
}
/// The same for the samples of this rank.
template <typename Use>
void for_each_utility(const SelectionState& state, const ReadUtilities& utilities, const Use& use) {
    for_each_utility(state.first(), state.last(), utilities, use);
}

/// F of the samples that are chosen or open, in one pass over the rows, with a message for each
/// edge to the owner of its larger end. UsageError if it does not fit in 64 bits. Collective.
[[nodiscard]] int64_t objective_of(SelectContext& context, const SelectionState& state,
                                   const ReadUtilities& utilities);

}  // namespace vocabpipe
