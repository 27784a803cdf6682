// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/files/cell.hpp"
#include "vocabpipe/schedule.hpp"

#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::files {

/// Whether the pass makes the gradient of a stage's input, which is sent on.
[[nodiscard]] constexpr bool is_backward(Op op) {
    return op == Op::B || op == Op::I;
}

/// A cell that is not a pass, and its position.
struct TransferCell {
    Transfer word;
    uint32_t stage = 0;
    uint32_t microbatch = 0;
    int rank = 0;
    size_t before = 0;  ///< passes of the rank before it
    size_t column = 0;  ///< in its row, from 0
};

struct TransferFault {
    int rank;
    std::optional<size_t> column;  ///< none: the cell is missing
    std::string reason;
};

/// The first fault of the transfers of a lowered file, if any. Every edge between ranks must have
/// one SEND after its producer and one RECV before its consumer, in the same order at both ends of
/// a channel. If there are WAIT_SEND, one must follow every SEND. No rank may wait forever. Passes
/// of a sharded stage must be between UNSHARD and RESHARD. REDUCE_GRAD comes once and last; if
/// there are WAIT_REDUCE_GRAD, each comes before the rank's next REDUCE_GRAD. `schedule` is valid;
/// `cells` are in order per rank.
[[nodiscard]] std::optional<TransferFault> find_transfer_fault(
    const Schedule& schedule, const std::vector<TransferCell>& cells);

}  // namespace vocabpipe::files
