// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace vocabpipe {

/// One data set of a blend.
struct WeightedPath {
    double weight = 1;  // share of the samples, relative to the sum of the weights; that sum is 1
    std::string path;   // as open_tokens() takes it
};

/// Megatron's words behind --data-path: one NAME, or WEIGHT NAME pairs, in which a name may come
/// several times. `flag` is for the message. UsageError on an odd number of words, or a weight that
/// is not a finite positive number.
[[nodiscard]] std::vector<WeightedPath> parse_data_paths(const std::string& flag,
                                                         const std::vector<std::string>& words);

}  // namespace vocabpipe
