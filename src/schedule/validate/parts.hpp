// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/validate.hpp"

#include <optional>

// The checks of find_violation(), in this order: each may rely on the ones before it. All take time
// and memory linear in the number of passes in the lists, even if the schedule claims to have many
// more.

namespace vocabpipe::validation {

/// Sizes, stages' ranks and shard maps.
[[nodiscard]] std::optional<Violation> shape_violation(const Schedule& schedule);
/// Whether every pass occurs once, on its rank, and after the passes that it needs on its own rank.
[[nodiscard]] std::optional<Violation> structure_violation(const Schedule& schedule);
/// Whether the lists, run in order, finish.
[[nodiscard]] std::optional<Violation> execution_violation(const Schedule& schedule);

}  // namespace vocabpipe::validation
