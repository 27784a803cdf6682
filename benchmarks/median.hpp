// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

namespace vocabpipe::bench {

/// The value in the middle; of an even number the upper of both. At least one.
template <typename Number>
[[nodiscard]] Number median(std::vector<Number> values) {
    const auto middle = values.begin() + std::ssize(values) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace vocabpipe::bench
