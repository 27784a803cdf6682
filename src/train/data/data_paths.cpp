// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/data_paths.hpp"

#include <cmath>

#include "src/support/parse_number.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

std::vector<WeightedPath> parse_data_paths(const std::string& flag,
                                           const std::vector<std::string>& words) {
    if (words.size() == 1) return {{.path = words.front()}};
    if (words.size() % 2 != 0) {
        throw UsageError(
            flag + ": has " + std::to_string(words.size()) +
            " words; use one name, or pairs of a weight and a name, such as 0.7 books 0.3 code");
    }
    std::vector<WeightedPath> paths;
    double sum = 0;
    for (size_t i = 0; i < words.size(); i += 2) {
        const auto weight = parse_number<double>(words[i]);
        if (!weight || !(*weight > 0)) {
            throw UsageError(flag + ": the weight '" + words[i] + "' of " + words[i + 1] +
                             " must be a finite number above 0, as in 0.7 books 0.3 code");
        }
        if (words[i + 1].empty()) throw UsageError(flag + ": a name is empty");
        paths.push_back({*weight, words[i + 1]});
        sum += *weight;
    }
    if (!std::isfinite(sum)) {
        throw UsageError(flag +
                         ": the sum of the weights is too large; use smaller weights, because only "
                         "their ratios matter");
    }
    for (WeightedPath& path : paths) path.weight /= sum;
    return paths;
}

}  // namespace vocabpipe
