// SPDX-License-Identifier: Apache-2.0
// How lowering and simulation ask the cost model, so that both get the same cost for an action.
#pragma once

#include "src/schedule/ops.hpp"
#include "vocabpipe/cost_model.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace vocabpipe {

/// Bytes that one participant of a communication sends.
template <typename BytesOf>
[[nodiscard]] int64_t bytes_sent(Do what, std::span<const uint32_t> operands, BytesOf&& bytes_of) {
    const uint32_t sent = moved(what, operands).sent;
    return sent == kNoBuffer ? 0 : bytes_of(sent);
}

/// Bytes that a local action reads and writes: every operand once.
template <typename BytesOf>
[[nodiscard]] int64_t bytes_touched(std::span<const uint32_t> operands, BytesOf&& bytes_of) {
    int64_t bytes = 0;
    for (const uint32_t operand : operands) {
        if (operand != kNoBuffer) bytes += bytes_of(operand);
    }
    return bytes;
}

}  // namespace vocabpipe
