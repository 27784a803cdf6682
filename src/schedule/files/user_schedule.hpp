// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/user_schedule.hpp"
#include "vocabpipe/validate.hpp"

#include <optional>

namespace vocabpipe::files {

/// The largest numbers of a pass: stages as in Pass::stage and validate(), microbatches as in
/// make_schedule().
inline constexpr uint32_t kLastStage = 65534;
inline constexpr uint32_t kLastMicrobatch = (1U << 24) - 1;

/// The schedule that user_schedule() infers, before validation. Stages that no rank runs are put on
/// rank 0, so that validate() reports the first missing pass; shard maps have 0 rows. Needs at
/// least one rank.
[[nodiscard]] Schedule inferred_schedule(std::vector<std::vector<Pass>> passes);

/// The first reason why a schedule from outside cannot run, or none: first a stage on two ranks,
/// then find_violation().
[[nodiscard]] std::optional<Violation> find_user_violation(const Schedule& schedule);

}  // namespace vocabpipe::files
