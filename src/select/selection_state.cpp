// SPDX-License-Identifier: Apache-2.0
#include "src/select/selection_state.hpp"

#include <algorithm>

namespace vocabpipe {

SelectionState::SelectionState(MemoryBudget& memory, int64_t first, int64_t last)
    : lease_(memory, static_cast<uint64_t>(last - first) * kBytes, "the state of samples"),
      first_(first),
      marks_(static_cast<size_t>(last - first)),
      u_max_(static_cast<size_t>(last - first)) {}

int64_t SelectionState::count(Decision decision) const {
    return std::ranges::count_if(
        marks_, [&](uint8_t mark) { return static_cast<Decision>(mark & kDecision) == decision; });
}

}  // namespace vocabpipe
