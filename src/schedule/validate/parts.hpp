// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/validate.hpp"

#include <optional>

// What find_violation() looks at, in this order: each part may rely on what those before it have
// found sound. Everything takes time and memory linear in the number of passes that are there, also
// when the schedule claims to have many more.

namespace vocabpipe::validation {

/// Sizes, stages' ranks and shard maps.
[[nodiscard]] std::optional<Violation> shape_violation(const Schedule& schedule);
/// Whether every pass is there once, on its rank, and after what it needs on its own rank.
[[nodiscard]] std::optional<Violation> structure_violation(const Schedule& schedule);
/// Whether the lists, run in order, finish.
[[nodiscard]] std::optional<Violation> execution_violation(const Schedule& schedule);

}  // namespace vocabpipe::validation
