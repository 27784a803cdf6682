// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/files/cell.hpp"
#include "vocabpipe/schedule.hpp"

#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::files {

/// What gives the gradient of a stage's input, which travels.
[[nodiscard]] constexpr bool is_backward(Op op) {
    return op == Op::B || op == Op::I;
}

/// A cell that is no pass, and where it stands.
struct TransferCell {
    Transfer word;
    uint32_t stage = 0;
    uint32_t microbatch = 0;
    int rank = 0;
    size_t before = 0;  ///< number of passes of the rank in front of it
    size_t column = 0;  ///< in its row, from 0
};

struct TransferFault {
    int rank;
    std::optional<size_t> column;  ///< none: a cell that is missing
    std::string reason;
};

/// What is wrong with the transfers of a lowered file. There must be one SEND after its producer
/// and one RECV before its consumer on every edge between ranks, in one order at both ends of a
/// channel; where there are WAIT_SEND, one after every SEND, and no rank waits for ever; passes of
/// a sharded stage between UNSHARD and RESHARD; REDUCE_GRAD once and last, and its
/// WAIT_REDUCE_GRAD, where there are any, before the next one on the rank. `schedule` is valid;
/// `cells` are in order per rank.
[[nodiscard]] std::optional<TransferFault> find_transfer_fault(
    const Schedule& schedule, const std::vector<TransferCell>& cells);

}  // namespace vocabpipe::files
