// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/make_schedule.hpp"

#include <array>
#include <optional>
#include <vector>

// ZB(k) made pass by pass for the costs of every stage (Qi et al. 2023; schedules reference, 5.8):
// what the closed form of zb.cpp does not know is that a hole may be shorter than a W.

namespace vocabpipe {

/// What the rule leaves open; the best of all eight is taken.
struct GreedyChoice {
    bool arrive_in_time = true;  ///< forwards before the first I must end before its gradient comes
    bool gradient_first = true;  ///< a rank well ahead of the next one may leave out a forward
    bool always_fill = true;     ///< a W goes into every hole, also one that is shorter than it
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

/// The lists of all ranks, at most `limit` microbatches alive on each; none where the rule gets
/// stuck with so little memory.
[[nodiscard]] std::optional<std::vector<std::vector<Pass>>> greedy_zero_bubble(
    const ScheduleOptions& options, int limit, const GreedyChoice& choice);

}  // namespace vocabpipe
