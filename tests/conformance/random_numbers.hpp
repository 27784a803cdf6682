// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace vocabpipe::kernels::test {

/// Normally distributed.
[[nodiscard]] inline std::vector<float> random_numbers(int64_t count, unsigned seed,
                                                       float scale = 1) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> value(0, scale);
    std::vector<float> result(static_cast<size_t>(count));
    for (float& number : result) number = value(engine);
    return result;
}

}  // namespace vocabpipe::kernels::test
