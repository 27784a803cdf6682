// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/plan.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace vocabpipe {

std::optional<VocabularyGain> vocabulary_gain(const Plan& plan) {
    const auto first = [&](bool shards) -> std::optional<size_t> {
        for (size_t i = 0; i < plan.rows.size(); ++i) {
            if (plan.rows[i].candidate.shards_vocabulary() == shards) return i;
        }
        return std::nullopt;
    };
    const std::optional<size_t> with = first(true), without = first(false);
    if (!with || !without || !plan.rows[*with].fits()) return std::nullopt;
    const PlanRow& one = plan.rows[*with];
    const PlanRow& other = plan.rows[*without];
    const auto ratio = [](int64_t a, int64_t b) {
        return static_cast<double>(a) / static_cast<double>(b);
    };
    return VocabularyGain{.with = *with,
                          .without = *without,
                          .step_ratio = ratio(one.step_ns, other.step_ns),
                          .memory_ratio = ratio(one.worst.total(), other.worst.total())};
}

}  // namespace vocabpipe
