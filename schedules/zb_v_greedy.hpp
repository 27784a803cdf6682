// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedules/v_pattern.hpp"

#include <array>
#include <optional>

// ZB-V made pass by pass for the costs of every stage, as the code of Qi et al. 2023 does
// (sail-sg's zero-bubble repository).

namespace vocabpipe::v_pattern {

/// Whether a rank that would become the one that waits most may put a W into a hole shorter than
/// the W before I1, or before a forward. Before I0 it always may.
struct VGreedyChoice {
    bool before_gradient = true;
    bool before_forward = true;
};

/// Every choice, the one that wins ties first.
inline constexpr std::array<VGreedyChoice, 4> kVGreedyChoices{
    {{true, true}, {true, false}, {false, true}, {false, false}}};

/// The rows, at most `limit` activations alive on every rank; none if the rule gets stuck, for
/// example with few microbatches.
[[nodiscard]] std::optional<Rows> greedy_rows(const Costs& costs, int microbatches, int limit,
                                              const VGreedyChoice& choice);

}  // namespace vocabpipe::v_pattern
