// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// 1F1B with an unsplit backward on the V placement (schedules reference, 5.13; "v1f1b" in
/// sail-sg's repository).
/// Rule: one microbatch every six slots, whose forwards go down and up the ranks without a pause
/// and whose backwards of two slots each follow with a pause after every third; then passes move to
/// earlier slots as far as inputs and the peak allow.
/// Bubble at F = 1, B = 2, m >= 2p: 5p - 5 slots where p mod 3 = 1, otherwise 5p - 9 to 5p - 6.
/// Memory: 2 floor(2p/3) + 2 chunks on every rank, where 1F1B needs 2p on rank 0.
/// Independent of the costs. Any p and m.
[[nodiscard]] Schedule v_one_f_one_b(const GenerateOptions& options);

}  // namespace vocabpipe
