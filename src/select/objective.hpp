// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/select_context.hpp"
#include "src/select/selection_state.hpp"

#include <cstdint>
#include <functional>

namespace vocabpipe {

/// Reads utilities of the samples from `first` on into `to`.
using ReadUtilities = std::function<void(int64_t first, std::span<int32_t> to)>;

/// F of the samples that are chosen or open, in one pass over the rows, with a message for each
/// edge to the owner of its larger end. UsageError if it does not fit in 64 bits. Collective.
[[nodiscard]] int64_t objective_of(SelectContext& context, const SelectionState& state,
                                   const ReadUtilities& utilities);

}  // namespace vocabpipe
