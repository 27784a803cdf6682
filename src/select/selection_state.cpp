// SPDX-License-Identifier: Apache-2.0
#include "src/select/selection_state.hpp"

#include <algorithm>

namespace vocabpipe {

SelectionState::SelectionState(MemoryBudget& memory, int64_t first, int64_t last,
                               const StateBlocks& blocks)
    : first_(first),
      block_length_(blocks.length(last - first, last - first)),
      lease_(memory, static_cast<uint64_t>(std::min(block_length_, last - first)) * kBytes,
             "the state of samples"),
      marks_(last - first, block_length_, blocks.folder),
      u_max_(last - first, block_length_, blocks.folder) {}

int64_t SelectionState::count(Decision wanted) const {
    int64_t found = 0;
    for (int64_t v = first(); v < last(); ++v) found += decision(v) == wanted ? 1 : 0;
    return found;
}

}  // namespace vocabpipe
