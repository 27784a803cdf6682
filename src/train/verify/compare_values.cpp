// SPDX-License-Identifier: Apache-2.0
#include "src/train/verify/compare_values.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdio>

namespace vocabpipe {

std::string Distance::text(int64_t columns) const {
    std::array<char, 192> text;
    const int end = std::snprintf(
        text.data(), text.size(), "element (%lld, %lld) is %.9g instead of %.9g",
        static_cast<long long>(worst / columns), static_cast<long long>(worst % columns),
        static_cast<double>(found), static_cast<double>(expected));
    std::string result(text.data(), static_cast<size_t>(end));
    if (bound) {
        std::snprintf(text.data(), text.size(), ", and all differ by %.3g with a bound of %.3g",
                      value, *bound);
        result += text.data();
    }
    return result;
}

Distance distance_between(std::span<const float> found, int64_t first,
                          std::span<const ElementRun> runs, std::span<const float> whole) {
    Distance distance;
    double squares = 0;
    double most = -1;
    for (const ElementRun& run : runs) {
        const int64_t begin = std::max(run.held, first);
        const int64_t end = std::min(run.held + run.count, first + std::ssize(found));
        for (int64_t i = begin; i < end; ++i) {
            const float mine = found[static_cast<size_t>(i - first)];
            const int64_t logical = run.logical + i - run.held;
            const float other = whole[static_cast<size_t>(logical)];
            if (std::bit_cast<uint32_t>(mine) == std::bit_cast<uint32_t>(other)) continue;
            if (std::isnan(mine) && std::isnan(other)) continue;
            const double difference = std::abs(double{mine} - double{other});
            squares += difference * difference;
            // A difference that is no number is the worst.
            if (!std::isnan(most) && !(difference <= most)) {
                most = difference;
                distance.worst = logical;
                distance.found = mine;
                distance.expected = other;
            }
        }
    }
    distance.value = std::sqrt(squares);
    return distance;
}

double euclidean_norm(std::span<const float> values) {
    double squares = 0;
    for (const float value : values) squares += double{value} * value;
    return std::sqrt(squares);
}

}  // namespace vocabpipe
