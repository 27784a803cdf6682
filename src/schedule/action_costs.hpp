// SPDX-License-Identifier: Apache-2.0
// What lowering and simulation ask the cost model: the same question for the same action.
#pragma once

#include "src/schedule/communication.hpp"
#include "vocabpipe/cost_model.hpp"

#include <algorithm>
#include <span>

namespace vocabpipe {

/// The two ends of a message are one transfer.
[[nodiscard]] constexpr Do transfer_kind(Do what) {
    return what == Do::receive ? Do::send : what;
}

/// What one participant sends: its first operand.
template <typename BytesOf>
[[nodiscard]] int64_t bytes_sent(std::span<const uint32_t> operands, BytesOf&& bytes_of) {
    return operands.empty() || operands[0] == kNoBuffer ? 0 : bytes_of(operands[0]);
}

/// What combine and fold read and write: every operand once.
template <typename BytesOf>
[[nodiscard]] int64_t bytes_touched(std::span<const uint32_t> operands, BytesOf&& bytes_of) {
    int64_t bytes = 0;
    for (const uint32_t operand : operands) {
        if (operand != kNoBuffer) bytes += bytes_of(operand);
    }
    return bytes;
}

}  // namespace vocabpipe
