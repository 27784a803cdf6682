// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/length_count.hpp"

#include <string>
#include <vector>

namespace vocabpipe::tool {

/// Parses --lengths, such as "8192:3,2048:5", microbatches by sequence length; the result goes from
/// the longest to the shortest. No lengths for "". UsageError naming what is wrong: no such pair, a
/// number out of range, a length twice, or more than 2^30 microbatches.
[[nodiscard]] std::vector<LengthCount> parse_length_counts(const std::string& text);

/// Microbatches of all lengths.
[[nodiscard]] int microbatches_of(const std::vector<LengthCount>& lengths);

/// Lengths of a step's microbatches in their order, as "2048 x 2, 8192 x 5, 2048". `of_microbatch`:
/// indices into `lengths`.
[[nodiscard]] std::string length_order_text(const std::vector<LengthCount>& lengths,
                                            const std::vector<int>& of_microbatch);

}  // namespace vocabpipe::tool
