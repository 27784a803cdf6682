// SPDX-License-Identifier: Apache-2.0
#include "src/model/rope.hpp"

#include <cmath>

namespace vocabpipe {

std::vector<float> rotary_table(const Rope& rope, int64_t head_size, int64_t positions) {
    const int64_t half = head_size / 2;
    std::vector<float> table(static_cast<size_t>(positions * head_size));
    for (int64_t i = 0; i < half; ++i) {
        double frequency =
            std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_size));
        if (rope.scaling == RopeScaling::linear) frequency /= rope.factor;
        for (int64_t t = 0; t < positions; ++t) {
            const double angle = static_cast<double>(t) * frequency;
            const auto row = static_cast<size_t>(t * head_size);
            table[row + static_cast<size_t>(i)] = static_cast<float>(std::cos(angle));
            table[row + static_cast<size_t>(half + i)] = static_cast<float>(std::sin(angle));
        }
    }
    return table;
}

}  // namespace vocabpipe
