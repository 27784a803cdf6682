// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/files/lowered_cells.hpp"

namespace vocabpipe::files {

/// The place where the ranks of a lowered file deadlock, if they do. A pass waits for the SEND of
/// its input, a WAIT_SEND for the RECV at the other end. `schedule` is valid, and every message has
/// one SEND and one RECV on the ranks of its ends.
[[nodiscard]] std::optional<TransferFault> find_lowered_deadlock(
    const Schedule& schedule, const std::vector<TransferCell>& cells);

}  // namespace vocabpipe::files
