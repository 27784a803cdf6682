// SPDX-License-Identifier: Apache-2.0
#include "src/step/split_layers.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <string>

namespace vocabpipe {

std::vector<int> split_layers(std::span<const double> costs, int stages) {
    const auto count = static_cast<int>(std::ssize(costs));
    if (count < stages) {
        throw UsageError("ModelConfig::model_forward: " + std::to_string(count) +
                         " layers for a schedule of " + std::to_string(stages) +
                         " stages, which need one each; call pipeline_stage() at least " +
                         std::to_string(stages - 1) + " times, or use fewer stages");
    }
    std::vector<double> before{0};  // costs of the layers before
    for (const double cost : costs) before.push_back(before.back() + cost);
    const auto cost_of = [&](int first, int end) {
        return before[static_cast<size_t>(end)] - before[static_cast<size_t>(first)];
    };
    // least[s][l]: cost of the costliest of s stages that hold the last layers, from l on.
    std::vector<std::vector<double>> least(
        static_cast<size_t>(stages) + 1,
        std::vector<double>(static_cast<size_t>(count) + 1, 2 * before.back() + 1));
    least[0][static_cast<size_t>(count)] = 0;
    const auto with_end = [&](int s, int first, int end) {
        return std::max(cost_of(first, end),
                        least[static_cast<size_t>(s) - 1][static_cast<size_t>(end)]);
    };
    for (int s = 1; s <= stages; ++s) {
        for (int first = 0; first < count; ++first) {
            double& best = least[static_cast<size_t>(s)][static_cast<size_t>(first)];
            for (int end = first + 1; end <= count; ++end) {
                best = std::min(best, with_end(s, first, end));
            }
        }
    }
    const double limit = least[static_cast<size_t>(stages)].front();
    std::vector<int> layers;
    for (int s = stages, first = 0; s > 0; --s) {
        int end = count;
        while (with_end(s, first, end) > limit) --end;
        layers.push_back(end - first);
        first = end;
    }
    return layers;
}

}  // namespace vocabpipe
