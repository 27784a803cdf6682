// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/schedule.hpp"

#include <string>
#include <vector>

namespace vocabpipe::files {

/// The cells of every rank as PyTorch 2.15 lowers these lists of transformer passes with its
/// defaults: passes, messages and the waits for their sends, UNSHARD and RESHARD for at most three
/// stages at a time, REDUCE_GRAD. `schedule` is valid and gives stages, ranks and microbatches.
[[nodiscard]] std::vector<std::vector<std::string>> lowered_tokens(
    const Schedule& schedule, const std::vector<std::vector<Pass>>& lists);

}  // namespace vocabpipe::files
