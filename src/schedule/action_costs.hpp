// SPDX-License-Identifier: Apache-2.0
// What lowering and simulation ask the cost model: the same question for the same action.
#pragma once

#include "src/schedule/communication.hpp"
#include "vocabpipe/cost_model.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace vocabpipe {

/// The two ends of a message are one transfer.
[[nodiscard]] constexpr Do transfer_kind(Do what) {
    return what == Do::receive ? Do::send : what;
}

/// Of pass `item`. A pair as long as its longer member: what the first has not filled is left to
/// the second.
[[nodiscard]] inline int64_t pass_duration(const CostModel& costs, int rank,
                                           const std::vector<Pass>& passes, uint32_t item,
                                           Pairs pairs) {
    const int64_t own = costs.pass_ns(rank, passes[item]);
    const bool second = pairs == Pairs::longest && item > 0 && passes[item - 1].with_next;
    return second ? std::max<int64_t>(0, own - costs.pass_ns(rank, passes[item - 1])) : own;
}

/// What one participant sends: its first operand.
template <typename BytesOf>
[[nodiscard]] int64_t bytes_sent(std::span<const uint32_t> operands, BytesOf&& bytes_of) {
    return operands.empty() || operands[0] == kNoBuffer ? 0 : bytes_of(operands[0]);
}

/// What combine_softmax and ordered_sum read and write: every operand once.
template <typename BytesOf>
[[nodiscard]] int64_t bytes_touched(std::span<const uint32_t> operands, BytesOf&& bytes_of) {
    int64_t bytes = 0;
    for (const uint32_t operand : operands) {
        if (operand != kNoBuffer) bytes += bytes_of(operand);
    }
    return bytes;
}

}  // namespace vocabpipe
