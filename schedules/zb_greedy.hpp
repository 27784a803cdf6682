// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/make_schedule.hpp"

#include <array>
#include <vector>

// ZB(k) made pass by pass for the costs of every stage, as the code of Qi et al. 2023 does
// (sail-sg's zero-bubble repository). Unlike the closed form of zb.cpp it considers that a hole may
// be shorter than a W.

namespace vocabpipe {

/// Choices that the rule leaves open; the best of all eight is taken.
struct GreedyChoice {
    bool arrive_in_time = true;  ///< warm-up forwards must end before the first gradient arrives
    bool gradient_first = true;  ///< a rank well ahead of the next one may skip a forward
    bool always_fill = true;     ///< a W goes into every hole, even if longer than the hole
};

/// Every choice, the one that wins ties first.
inline constexpr std::array<GreedyChoice, 8> kGreedyChoices{{{true, true, true},
                                                             {true, true, false},
                                                             {true, false, true},
                                                             {true, false, false},
                                                             {false, true, true},
                                                             {false, true, false},
                                                             {false, false, true},
                                                             {false, false, false}}};

/// The lists of all ranks, at most `limit` microbatches alive on each, which is at least 1.
[[nodiscard]] std::vector<std::vector<Pass>> greedy_zero_bubble(const ScheduleOptions& options,
                                                                int limit,
                                                                const GreedyChoice& choice);

}  // namespace vocabpipe
